import { defineConfig } from "vitest/config";

export default defineConfig({
  root: "..",
  cacheDir: "console/node_modules/.vitest-browser",
  test: {
    include: ["console/browser/**/*.test.ts"],
    environment: "node",
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // Each file starts a Core and a browser.
    maxWorkers: 1,
    minWorkers: 1,
  },
});
