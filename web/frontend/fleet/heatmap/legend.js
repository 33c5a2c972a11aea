/* The legend of the heatmap scale: 0, half a second, the SLO, the maximum. */

import { KNEE_S, SLO_SPAN, heatPosition } from '../../charts/log_scale.js';
import { byId, make } from '../../shell/element.js';

const RAMP_LEFT = 12;
const RAMP_WIDTH = 144;
/** @param {number} value */
const number = (value) => String(Number(value.toPrecision(3)));

/**
 * Draw the legend of a pool's scale, once per SLO.
 * @param {number} sloS
 */
export function updateLegend(sloS) {
  const legend = byId('legend');
  if (legend.dataset.slo === String(sloS)) return;
  legend.dataset.slo = String(sloS);
  legend.setAttribute(
    'aria-label',
    `Colour scale: seconds of waiting, logarithmic from 0 to ${number(SLO_SPAN * sloS)}; the SLO is ${number(sloS)}`,
  );
  const ramp = make('span', 'legend-ramp', ...Array.from({ length: 9 }, () => make('i')));
  /** @type {[value: number, words: string][]} */
  const marks = [
    [KNEE_S, number(KNEE_S)],
    [sloS, `${number(sloS)} SLO`],
  ];
  const ticks = marks.flatMap(([value, words]) => {
    const left = `${RAMP_LEFT + heatPosition(value, sloS) * RAMP_WIDTH}px`;
    const made = [make('i', 'legend-tick'), make('span', 'legend-word', words)];
    for (const part of made) part.style.left = left;
    return made;
  });
  legend.replaceChildren(
    make('span', 'legend-zero', '0'),
    ramp,
    ...ticks,
    make('span', 'legend-top', `${number(SLO_SPAN * sloS)} s, log`),
  );
}
