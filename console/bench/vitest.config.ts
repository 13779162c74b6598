import { defineConfig } from "vitest/config";

export default defineConfig({
  root: "..",
  cacheDir: "console/node_modules/.vitest-bench",
  test: {
    include: ["console/bench/*.test.ts"],
    environment: "node",
    testTimeout: 300_000,
    hookTimeout: 120_000,
    maxWorkers: 1,
    minWorkers: 1,
  },
});
