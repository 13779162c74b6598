// From measured intervals to lines and dots. Nothing is interpolated: an interval without a value ends a line, and a value
// between two such is a dot (INV-W18).

export interface Place {
  x: number;
  y: number;
}

export interface Drawn {
  /** Each at least two places. */
  lines: Place[][];
  dots: Place[];
}

/** `values` by interval, oldest first; the chart is `width` by `height` with zero at its bottom and `top` at its top. */
export function draw(values: (number | null)[], top: number, width: number, height: number): Drawn {
  const drawn: Drawn = { lines: [], dots: [] };
  let run: Place[] = [];
  const end = () => {
    const [only] = run;
    if (run.length > 1) {
      drawn.lines.push(run);
    } else if (only) {
      drawn.dots.push(only);
    }
    run = [];
  };
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  for (const [at, value] of values.entries()) {
    if (value === null) {
      end();
    } else {
      const part = top > 0 ? Math.min(Math.max(value / top, 0), 1) : 0;
      run.push({ x: at * step, y: height - part * height });
    }
  }
  end();
  return drawn;
}

/** Points of a range, oldest first, with an empty one for every interval that Core does not name. */
export function fill<P extends { start: string }>(
  points: P[],
  resolutionSeconds: number,
  count: number,
  now: number,
): { start: number; point: P | undefined }[] {
  const wide = resolutionSeconds * 1000;
  const known = new Map(points.map((point) => [Date.parse(point.start), point]));
  const last = Math.floor(now / wide) * wide - wide;
  return Array.from({ length: count }, (_, at) => {
    const start = last - (count - 1 - at) * wide;
    return { start, point: known.get(start) };
  });
}
