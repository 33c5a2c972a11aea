/* Colour means seconds of waiting, comparable between engines of different speed: the scale is fixed
   by the policy's TTFT SLO, never by the data on screen. */

/** Below this the scale is about linear, seconds. */
export const KNEE_S = 0.5;
/** The scale ends at this multiple of the SLO. */
export const SLO_SPAN = 4;

/**
 * Return the position 0..1 of a wait on the scale: ln(1 + x/k) / ln(1 + X/k), k = KNEE_S, X = SLO_SPAN × SLO.
 * NaN stays NaN.
 * @param {number} waitS
 * @param {number} sloS
 */
export function heatPosition(waitS, sloS) {
  const top = Math.log1p((SLO_SPAN * sloS) / KNEE_S);
  return Math.min(1, Math.log1p(Math.max(0, waitS) / KNEE_S) / top);
}
