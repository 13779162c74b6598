// The console's pictures, drawn in the text's colour.

const PATHS = {
  ok: "M3.5 8.5l3 3 6-7",
  warn: "M8 3v6M8 12v.5",
  bad: "M4 4l8 8M12 4l-8 8",
  wait: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0M8 4.8V8l2.2 1.4",
  off: "M4 8h8",
  info: "M8 7.2V12.5M8 3.8v.4",
  question: "M6 6a2 2 0 1 1 2.8 1.8c-.6.3-.8.6-.8 1.2M8 11.5v.5",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  more: "M8 3.6v.2M8 7.9v.2M8 12.2v.2",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
