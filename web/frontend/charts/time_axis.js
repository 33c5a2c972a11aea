/* The labels along a time axis: round moments, and marked ones without overlap. */

import { clock, count, minuteClock } from '../shell/format.js';

/** Spans up to which ticks are this many seconds apart. @type {[spanS: number, stepS: number][]} */
const STEPS = [
  [600, 60],
  [7200, 600],
  [Infinity, 3 * 3600],
];
export const CAPSULE = 20;
const GAP = 3;
const LETTER = 6.3;
const PADDING = 7;

/**
 * Return round moments as [label, percent from the left], without those too near an end.
 * @param {number} from unix seconds
 * @param {number} span seconds
 * @param {number} most percent
 * @param {number} sparser steps between two ticks
 */
export function timeTicks(from, span, most = 92, sparser = 1) {
  const step = sparser * (STEPS.find(([longest]) => span <= longest) ?? STEPS[2])[1];
  /** @type {[label: string, left: number][]} */
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < from + span; at += step) {
    const left = ((at - from) / span) * 100;
    if (left >= 3 && left <= most) ticks.push([step >= 600 ? minuteClock(at) : clock(at), left]);
  }
  return ticks;
}

/**
 * Width of a capsule with its words, CSS pixels.
 * @param {string} label
 */
const wordyWidth = (label) => CAPSULE + label.length * LETTER + PADDING;

/**
 * @template {Placeable} M
 * @typedef {{ x: number, label: string, wordy: boolean, markers: M[] }} Capsule stacked markers
 */

/** @typedef {{ x: number, label: string }} Placeable x in CSS pixels */

/**
 * Arrange markers, ascending in x, without overlap: crowding drops labels first, then stacks markers.
 * @template {Placeable} M
 * @param {M[]} markers
 * @returns {Capsule<M>[]}
 */
export function arrangeMarkers(markers) {
  /** @type {{ x: number, markers: M[] }[]} */
  const stacks = [];
  for (const marker of markers) {
    const last = stacks.at(-1);
    if (last && marker.x - last.x < CAPSULE + GAP) last.markers.push(marker);
    else stacks.push({ x: marker.x, markers: [marker] });
  }
  return stacks.map((stack, index) => {
    const label = stack.markers.length > 1 ? count(stack.markers.length, 'event') : stack.markers[0].label;
    const next = stacks[index + 1];
    return { ...stack, label, wordy: !next || stack.x + wordyWidth(label) + GAP <= next.x };
  });
}
