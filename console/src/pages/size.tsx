// What a sandbox is made of: a few proposals, or numbers of one's own within Core's bounds (core.md section 5).

import type { Resources } from "../api/types.ts";
import { wholeNumber } from "../format/entry.ts";
import { size } from "../format/format.ts";
import { t } from "../text/text.ts";
import { Choice, Field } from "../ui/field.tsx";

const MEMBERS = [
  { name: "cpus", label: "resources.cpus", min: 1, max: 255, disk: false },
  { name: "memory_mib", label: "resources.memory", min: 512, max: 1_048_576, disk: false },
  { name: "root_disk_mib", label: "resources.root", min: 1024, max: 4_294_967_295, disk: true },
  { name: "environment_disk_mib", label: "resources.environment", min: 1024, max: 4_294_967_295, disk: true },
] as const;
type Member = (typeof MEMBERS)[number]["name"];

/** Whose sandboxes these are, and whether a workspace takes the place of the environment disk. */
export interface Kind {
  provider: "docker" | "microsandbox";
  workspace: boolean;
}

const PROPOSED: Record<Kind["provider"], Record<Member, number>> = {
  docker: { cpus: 2, memory_mib: 2048, root_disk_mib: 0, environment_disk_mib: 0 },
  microsandbox: { cpus: 2, memory_mib: 4096, root_disk_mib: 8192, environment_disk_mib: 8192 },
};
const FACTOR = { small: 0.5, standard: 1, large: 2 } as const;

export type Preset = keyof typeof FACTOR | "current" | "custom";

export interface SizeEntry {
  preset: Preset;
  typed: Record<Member, string>;
}

export function fields({ provider, workspace }: Kind) {
  return MEMBERS.filter(
    ({ name, disk }) =>
      !disk || (provider === "microsandbox" && !(name === "environment_disk_mib" && workspace)),
  );
}

function filled(kind: Kind, value: (member: Member) => number): Resources {
  return Object.fromEntries(fields(kind).map(({ name }) => [name, value(name)])) as unknown as Resources;
}

export function presetSize(kind: Kind, preset: keyof typeof FACTOR): Resources {
  return filled(kind, (member) => PROPOSED[kind.provider][member] * FACTOR[preset]);
}

export function entryOf(preset: Preset, from: Partial<Resources>): SizeEntry {
  const of = (member: Member) => String(from[member] ?? "");
  return {
    preset,
    typed: {
      cpus: of("cpus"),
      memory_mib: of("memory_mib"),
      root_disk_mib: of("root_disk_mib"),
      environment_disk_mib: of("environment_disk_mib"),
    },
  };
}

/** The size that was chosen; none while a number is out of its bounds. */
export function chosenSize(
  kind: Kind,
  entry: SizeEntry,
  current: Resources | undefined,
): Resources | undefined {
  if (entry.preset === "current") {
    return current && filled(kind, (member) => current[member] ?? 0);
  }
  if (entry.preset !== "custom") {
    return presetSize(kind, entry.preset);
  }
  const values = fields(kind).map(({ name, min, max }) => wholeNumber(entry.typed[name], min, max));
  return values.includes(undefined)
    ? undefined
    : filled(kind, (member) => Number(entry.typed[member].trim()));
}

interface Props {
  kind: Kind;
  /** What holds now, when it is edited. */
  current?: Resources | undefined;
  entry: SizeEntry;
  onChange: (entry: SizeEntry) => void;
  /** Whether somebody tried to go on with it. */
  checked: boolean;
  errorOf: (member: string) => string | undefined;
}

export function SizeChoice({ kind, current, entry, onChange, checked, errorOf }: Props) {
  const presets: Preset[] = [
    ...(current ? (["current"] as const) : []),
    "small",
    "standard",
    "large",
    "custom",
  ];
  const text = (preset: Preset) => {
    const shown = preset === "custom" ? undefined : chosenSize(kind, { ...entry, preset }, current);
    return shown && size(shown);
  };
  return (
    <>
      <Choice
        label={t("size.title")}
        value={entry.preset}
        onChange={(preset) => {
          // One's own numbers begin at what was chosen before.
          const from = chosenSize(kind, entry, current);
          onChange(preset === "custom" && from ? entryOf(preset, from) : { ...entry, preset });
        }}
        options={presets.map((preset) => ({
          value: preset,
          label: t(`size.${preset}`),
          ...(text(preset) !== undefined && { text: text(preset) as string }),
        }))}
      />
      {entry.preset === "custom" && (
        <div className="fields">
          {fields(kind).map(({ name, label, min, max }) => {
            const value = wholeNumber(entry.typed[name], min, max);
            const now = current?.[name];
            const wrong = checked && value === undefined ? t("bound.range", { min, max }) : undefined;
            return (
              <Field
                key={name}
                label={t(label)}
                inputMode="numeric"
                value={entry.typed[name]}
                onChange={(typed) => onChange({ ...entry, typed: { ...entry.typed, [name]: typed } })}
                error={errorOf(`resources.${name}`) ?? wrong}
                hint={now !== undefined && now !== value ? t("now", { value: now }) : undefined}
              />
            );
          })}
        </div>
      )}
    </>
  );
}

export const sizeParams = (kind: Kind): string[] => fields(kind).map(({ name }) => `resources.${name}`);
