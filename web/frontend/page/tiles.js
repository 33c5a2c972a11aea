/* The verdict line and the six tiles. */

import { tileFigures } from '../figures/fleet_figures.js';
import { UNKNOWN } from '../figures/format.js';
import { byId, changeShape, setText } from './element.js';

export class Tiles {
  constructor() {
    this.tiles = [...byId('tiles').children].map((tile) => ({
      shape: tile.querySelector('.shape'),
      label: tile.querySelector('.tile-label span'),
      window: tile.querySelector('.tile-window'),
      figure: tile.querySelector('.tile-value b'),
      unit: tile.querySelector('.tile-value small'),
      note: tile.querySelector('.tile-note'),
      spark: tile.querySelector('sy-spark'),
    }));
  }

  update(view) {
    if (view.focus < 0 || view.state.index === null) return;
    tileFigures(view.state, view.pools, view.focus).forEach((figures, place) => {
      const tile = this.tiles[place];
      setText(tile.label, figures.label);
      setText(tile.window, figures.window);
      const title = figures.window === 'now' ? '' : `over the last ${figures.window}`;
      if (tile.window.title !== title) tile.window.title = title;
      setText(tile.figure, figures.figure);
      tile.figure.parentElement.classList.toggle('unknown', figures.figure === UNKNOWN);
      setText(tile.unit, figures.unit);
      setText(tile.note, figures.note);
      if (tile.note.title !== figures.note) tile.note.title = figures.note;
      tile.shape.toggleAttribute('hidden', !figures.mark);
      if (figures.mark) changeShape(tile.shape, figures.mark);
      tile.spark.show(figures.spark);
    });
  }
}

const SHAPES = { ok: 'serving', info: 'draining', warn: 'hot', bad: 'lost', quiet: 'unknown' };

/** Show the server's sentence; it is a live region, so it changes only when the words do. */
export function updateVerdict(state) {
  const { severity, lead, text, shape, engine_id: engineId } = state.verdict;
  const line = byId('verdict');
  line.dataset.severity = severity;
  changeShape(line.querySelector('svg'), shape || SHAPES[severity]);
  line.title = `${lead} ${text}`;
  setText(line.querySelector('b'), lead);
  setText(line.querySelector('p > span'), text);
  const engine = state.engines[state.engineRow(engineId)];
  const link = byId('verdict-engine');
  link.hidden = !engine;
  if (!engine) return;
  link.dataset.engine = engine.id;
  link.href = `?engine=${encodeURIComponent(engine.id)}`;
  setText(link, `Open ${engine.name}`);
}
