import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `cargo xtask console` says where the Core is whose routes the development server passes on.
// The host stays the one that the browser names: Core refuses a request whose origin is another.
const target = process.env.OAC_CONSOLE_CORE ?? "http://127.0.0.1:8080";
const core = { target, changeOrigin: false };

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "dist",
    // The policy allows no `data:` address, so every file is a file.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  server: { proxy: { "/core": core, "/api": core } },
});
