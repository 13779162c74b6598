import { defineConfig } from "vitest/config";

// The root is the checkout's, so that a test is reported under the file name that its marks are read from.
export default defineConfig({
  root: "..",
  cacheDir: "console/node_modules/.vitest",
  test: { include: ["console/src/**/*.test.ts"], environment: "node" },
});
