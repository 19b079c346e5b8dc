// Holds the board against Grafana's own types: the board, its panels, and the options of each kind of panel.
//
//   check.mjs BOARD FOLDER    the folder has the packages, and gets a file in TypeScript
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const [, , path, folder] = process.argv;
const board = JSON.parse(readFileSync(path, "utf8"));

// Modules of the kinds of panels, by what the board calls these.
const KINDS = { timeseries: "timeseries", stat: "stat", "state-timeline": "statetimeline", heatmap: "heatmap", table: "table" };

const lines = [
  'import type { Dashboard, DashboardCursorSync, Panel, RowPanel } from "@grafana/schema/dist/types/raw/dashboard/x/types.gen";',
  ...Object.values(KINDS).map(
    (name) => `import type * as ${name} from "@grafana/schema/dist/types/raw/composable/${name}/panelcfg/x/types.gen";`,
  ),
  // JSON has the values of enumerations, not their names.
  "type Plain<T> = T extends string ? `${T}` : T extends number ? number : T extends boolean | null | undefined ? T :",
  "  T extends (infer E)[] ? Plain<E>[] : { [K in keyof T]: Plain<T[K]> };",
  // What Prometheus adds to an annotation is not in the types of the board.
  "type Note = { name: string; enable: boolean; hide: boolean; iconColor: string; titleFormat: string;",
  '  datasource: { type: string; uid: string }; target: { refId: string; expr: string } };',
  'type Board = Omit<Plain<Dashboard>, "panels" | "annotations" | "templating"> & {',
  '  annotations: { list: Note[] };',
  "  // The label and the definition of a variable that is a query are Grafana's, too.",
  '  templating: { list: (Plain<NonNullable<NonNullable<Dashboard["templating"]>["list"]>[number]> & { definition?: string })[] } };',
];

const { panels, ...rest } = board;
lines.push(`export const board: Board = ${JSON.stringify(rest)};`);
for (const panel of panels) {
  const name = `panel${panel.id}`;
  if (panel.type === "row") {
    lines.push(`export const ${name}: Plain<RowPanel> = ${JSON.stringify(panel)};`);
    continue;
  }
  const kind = KINDS[panel.type];
  if (!kind) throw new Error(`${panel.title}: no types for the kind ${panel.type}`);
  lines.push(`export const ${name}: Plain<Panel> = ${JSON.stringify(panel)};`);
  lines.push(`export const ${name}Options: Plain<${kind}.Options> = ${JSON.stringify(panel.options)};`);
  const custom = panel.fieldConfig.defaults.custom;
  if (custom) lines.push(`export const ${name}Field: Partial<Plain<${kind}.FieldConfig>> = ${JSON.stringify(custom)};`);
}

const file = join(folder, "board.ts");
writeFileSync(file, lines.join("\n") + "\n");
const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext", "--moduleResolution", "node10", "--target", "es2022"];
try {
  execFileSync(process.execPath, [join(folder, "node_modules/typescript/bin/tsc"), ...options, file], { stdio: "inherit" });
} catch {
  process.exit(1);
}
console.log(`the board and its ${panels.length} panels fit the types of Grafana`);
