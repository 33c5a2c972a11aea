/* The scale of the heat pictures: 0, half a second, the SLO, the top. */

import { KNEE_S, SLO_SPAN, heatPosition } from '../scale/log_scale.js';
import { byId, make } from './element.js';

const RAMP_LEFT = 12;
const RAMP_WIDTH = 144;
const number = (value) => String(Number(value.toPrecision(3)));

/** Draw the legend of a pool's scale, once per SLO. */
export function updateLegend(sloS) {
  const legend = byId('legend');
  if (legend.dataset.slo === String(sloS)) return;
  legend.dataset.slo = String(sloS);
  legend.setAttribute('aria-label', `Colour scale: seconds of waiting, logarithmic from 0 to ${number(SLO_SPAN * sloS)}; the SLO is ${number(sloS)}`);
  const ramp = make('span', 'legend-ramp', ...Array.from({ length: 9 }, () => make('i')));
  const ticks = [[KNEE_S, number(KNEE_S)], [sloS, `${number(sloS)} SLO`]].flatMap(([value, words]) => {
    const left = `${RAMP_LEFT + heatPosition(value, sloS) * RAMP_WIDTH}px`;
    const made = [make('i', 'legend-tick'), make('span', 'legend-word', words)];
    for (const part of made) part.style.left = left;
    return made;
  });
  legend.replaceChildren(make('span', 'legend-zero', '0'), ramp, ...ticks, make('span', 'legend-top', `${number(SLO_SPAN * sloS)} s, log`));
}
