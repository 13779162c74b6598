// After the build: every file is packed beside itself, and what a first visit loads stays within its budget.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { constants, gzipSync } from "node:zlib";

/** Bytes of the page, its scripts, styles and icon, packed (console.md section 12). */
const BUDGET = 180 * 1000;

const files = readdirSync("dist", { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && !entry.name.endsWith(".gz"))
  .map((entry) => join(entry.parentPath, entry.name))
  .sort();
let sum = 0;
for (const file of files) {
  // Level and header are fixed, so that the same files are packed into the same bytes.
  const packed = gzipSync(readFileSync(file), { level: constants.Z_BEST_COMPRESSION });
  packed[9] = 255;
  writeFileSync(`${file}.gz`, packed);
  sum += packed.length;
}
process.stdout.write(`first load: ${(sum / 1000).toFixed(1)} kB packed of ${BUDGET / 1000} kB\n`);
if (sum > BUDGET) {
  process.stderr.write("The first load is over its budget: remove something, or load it later.\n");
  process.exit(1);
}
