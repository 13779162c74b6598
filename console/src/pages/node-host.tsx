import type { NodeDetail, Point, Range } from "../api/types.ts";
import { fill } from "../format/chart.ts";
import { ago, gib, parse, percent } from "../format/format.ts";
import { t } from "../text/text.ts";
import { Chart } from "../ui/chart.tsx";
import { Facts } from "../ui/facts.tsx";
import { Choice } from "../ui/field.tsx";
import { useNow } from "../ui/time.tsx";

/** Intervals of a range (core.md section 10). */
const INTERVALS: Record<Range, number> = { "1h": 60, "6h": 72, "24h": 96 };
const RANGES: Range[] = ["1h", "6h", "24h"];

interface Props {
  detail: NodeDetail;
  /** The range that `detail` was asked for. */
  range: Range;
  /** The one that was chosen, and is drawn once it was read. */
  chosen: Range;
  setRange: (range: Range) => void;
  stale: boolean;
}

export function NodeHost({ detail, range, chosen, setRange, stale }: Props) {
  const now = useNow(5000);
  const { host, history } = detail;
  if (host.observed_at === null) {
    return <p className="empty">{t("host.none")}</p>;
  }
  const shown = (value: number | null, as: (value: number) => string) =>
    value === null ? t("none") : as(value);
  const filled = fill(history.points, history.resolution_seconds, INTERVALS[range], now);
  const of = (value: (point: Point) => number | null) =>
    filled.map(({ start, point }) => ({ start, value: point === undefined ? null : value(point) }));
  const free = of((point) => point.available_disk_bytes_min);
  const memory =
    host.total_memory_bytes ?? Math.max(0, ...history.points.map((p) => p.memory_used_bytes_max ?? 0));
  const disk = Math.max(host.available_disk_bytes ?? 0, ...free.map((interval) => interval.value ?? 0));
  return (
    <>
      <Facts
        facts={[
          [t("host.cores"), shown(host.effective_cpu_cores, (count) => t("cores", { count }))],
          [t("host.memory"), shown(host.total_memory_bytes, gib)],
          [t("host.disk"), shown(host.available_disk_bytes, gib)],
        ]}
      />
      {(!detail.online || stale) && (
        <p className="hint">{t("host.lastMeasured", { time: ago(parse(host.observed_at), now) })}</p>
      )}
      <Choice
        label={t("host.range")}
        value={chosen}
        onChange={setRange}
        inline
        options={RANGES.map((value) => ({ value, label: t(`host.range.${value}`) }))}
      />
      <div className="charts">
        <Chart
          title={t("chart.cpu")}
          intervals={of((point) => point.cpu_utilization_max)}
          top={1}
          show={percent}
        />
        <Chart
          title={t("chart.memory")}
          intervals={of((point) => point.memory_used_bytes_max)}
          top={memory}
          show={gib}
        />
        <Chart title={t("chart.disk")} intervals={free} top={disk} show={gib} />
      </div>
    </>
  );
}
