/** Signs that stand beside words, as strokes, so that page and PDF have the same whatever their faces can draw. */

export type Sign =
  | 'check'
  | 'times'
  | 'unequal'
  | 'broken'
  | 'circle'
  | 'question'
  | 'bang'
  | 'dots'
  | 'bracket'
  | 'half'
  | 'dash'
  | 'zero'
  | 'steps1'
  | 'steps2'
  | 'steps3'
  | 'steps4'
  | 'steps5';

/** Strokes of a sign on a square of 10: polylines, and dots as points. */
export interface SignStrokes {
  readonly lines: readonly (readonly (readonly [x: number, y: number])[])[];
  readonly dots?: readonly (readonly [x: number, y: number])[];
}

const hundredth = (value: number): number => Math.round(value * 100) / 100;

const ring = (cx: number, cy: number, r: number, steps = 16): readonly (readonly [number, number])[] =>
  Array.from({ length: steps + 1 }, (_, i) => {
    const angle = (i / steps) * 2 * Math.PI;
    return [hundredth(cx + r * Math.cos(angle)), hundredth(cy + r * Math.sin(angle))] as const;
  });

const stairs = (filled: number): SignStrokes => ({
  lines: Array.from({ length: 5 }, (_, i) => i)
    .filter((i) => i < filled)
    .map((i) => [
      [1 + i * 2, 9],
      [1 + i * 2, 7.4 - i * 1.6],
    ]),
  dots: Array.from({ length: 5 - filled }, (_, i) => [1 + (filled + i) * 2, 9] as const),
});

export const SIGNS: Readonly<Record<Sign, SignStrokes>> = {
  check: {
    lines: [
      [
        [1, 5.4],
        [4, 8.6],
        [9, 1.6],
      ],
    ],
  },
  times: {
    lines: [
      [
        [1.6, 1.6],
        [8.4, 8.4],
      ],
      [
        [8.4, 1.6],
        [1.6, 8.4],
      ],
    ],
  },
  unequal: {
    lines: [
      [
        [1, 3.6],
        [9, 3.6],
      ],
      [
        [1, 6.6],
        [9, 6.6],
      ],
      [
        [7.2, 0.8],
        [2.8, 9.4],
      ],
    ],
  },
  broken: {
    lines: [
      [
        [0.6, 5],
        [3.2, 5],
      ],
      [
        [6.8, 5],
        [9.4, 5],
      ],
      [
        [3.2, 2.4],
        [3.2, 7.6],
      ],
      [
        [6.8, 2.4],
        [6.8, 7.6],
      ],
    ],
  },
  circle: { lines: [ring(5, 5, 3.8)] },
  question: {
    lines: [
      [
        [2.6, 3.2],
        [3, 1.8],
        [4.2, 1],
        [5.8, 1],
        [7, 1.8],
        [7.3, 3.1],
        [6.6, 4.3],
        [5.4, 5.1],
        [5, 6.4],
      ],
    ],
    dots: [[5, 8.8]],
  },
  bang: {
    lines: [
      [
        [5, 1],
        [5, 6.2],
      ],
    ],
    dots: [[5, 8.8]],
  },
  dots: {
    lines: [],
    dots: [
      [1.6, 5],
      [5, 5],
      [8.4, 5],
    ],
  },
  bracket: {
    lines: [
      [
        [8.6, 1.4],
        [2, 1.4],
        [2, 8.6],
        [8.6, 8.6],
      ],
    ],
  },
  half: {
    lines: [
      ring(5, 5, 3.8),
      [
        [5, 1.2],
        [5, 8.8],
      ],
      [
        [3.4, 1.9],
        [3.4, 8.1],
      ],
      [
        [2.2, 2.8],
        [2.2, 7.2],
      ],
    ],
  },
  dash: {
    lines: [
      [
        [1.6, 5],
        [8.4, 5],
      ],
    ],
  },
  zero: {
    lines: [
      ring(5, 5, 3.8),
      [
        [7.4, 1.8],
        [2.6, 8.2],
      ],
    ],
  },
  steps1: stairs(1),
  steps2: stairs(2),
  steps3: stairs(3),
  steps4: stairs(4),
  steps5: stairs(5),
};
