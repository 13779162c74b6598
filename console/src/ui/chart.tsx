// One line of measurements, with its values as a table.

import { draw } from "../format/chart.ts";
import { clockTime, moment, utc } from "../format/format.ts";
import { t } from "../text/text.ts";

const WIDTH = 320;
const HEIGHT = 96;

export interface Interval {
  start: number;
  value: number | null;
}

interface Props {
  title: string;
  intervals: Interval[];
  /** The value at the top. */
  top: number;
  show: (value: number) => string;
}

export function Chart({ title, intervals, top, show }: Props) {
  const values = intervals.map((interval) => interval.value);
  const known = intervals.filter(
    (interval): interval is Interval & { value: number } => interval.value !== null,
  );
  const last = known.at(-1);
  const latest = last && t("chart.latest", { value: show(last.value), time: clockTime(last.start) });
  const summary =
    latest === undefined
      ? `${title}. ${t("chart.noValue")}`
      : t("chart.summary", {
          title,
          latest,
          low: show(Math.min(...known.map((interval) => interval.value))),
          high: show(Math.max(...known.map((interval) => interval.value))),
        });
  const { lines, dots } = draw(values, top, WIDTH, HEIGHT);
  return (
    <figure className="chart">
      <figcaption>
        <span>{title}</span>
        <strong>{latest ?? t("chart.noValue")}</strong>
      </figcaption>
      <div className="plot">
        <span className="axis" aria-hidden="true">
          <span>{show(top)}</span>
          <span>{show(0)}</span>
        </span>
        <svg
          viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={summary}
        >
          {[0, 0.5, 1].map((part) => (
            <line key={part} className="grid" x1={0} x2={WIDTH} y1={part * HEIGHT} y2={part * HEIGHT} />
          ))}
          {lines.map((line) => (
            <polyline key={line[0]?.x} points={line.map(({ x, y }) => `${x},${y}`).join(" ")} />
          ))}
          {dots.map(({ x, y }) => (
            // A line of no length with round ends is a dot whatever the chart is stretched to.
            <line key={x} className="dot" x1={x} x2={x} y1={y} y2={y} />
          ))}
        </svg>
      </div>
      <p className="times" aria-hidden="true">
        <span>{intervals[0] && clockTime(intervals[0].start)}</span>
        <span>{intervals.at(-1) && clockTime(intervals.at(-1)?.start ?? 0)}</span>
      </p>
      <details>
        <summary>{t("chart.table")}</summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is scrolled by keyboard too */}
        <section className="scroll" aria-label={title} tabIndex={0}>
          <table>
            <caption className="unseen">{title}</caption>
            <thead>
              <tr>
                <th scope="col">{t("chart.interval")}</th>
                <th scope="col">{t("chart.value")}</th>
              </tr>
            </thead>
            <tbody>
              {intervals.toReversed().map(({ start, value }) => (
                <tr key={start}>
                  <th scope="row">
                    <time dateTime={utc(start)} title={utc(start)}>
                      {moment(start)}
                    </time>
                  </th>
                  <td className="number">{value === null ? t("none") : show(value)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      </details>
    </figure>
  );
}
