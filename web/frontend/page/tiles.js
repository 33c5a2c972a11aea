/* The verdict line and the six tiles. */

import { tileFigures } from '../figures/fleet_figures.js';
import { UNKNOWN } from '../figures/format.js';
import { byId, changeShape, sentence, setText } from './element.js';

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

  /** Without a picture there are no figures: none must stay from another one. */
  #clear() {
    for (const tile of this.tiles) {
      for (const part of ['window', 'unit']) setText(tile[part], '');
      setText(tile.note, '\u00a0');
      setText(tile.figure, UNKNOWN);
      tile.figure.parentElement.classList.add('unknown');
      tile.shape.setAttribute('hidden', '');
      tile.spark.show([]);
    }
  }

  update(view) {
    if (view.focus < 0 || view.state.index === null) {
      this.#clear();
      return;
    }
    tileFigures(view.state, view.pools, view.focus, Boolean(view.end)).forEach((figures, place) => {
      const tile = this.tiles[place];
      setText(tile.label, figures.label);
      setText(tile.window, figures.window);
      if (tile.window.title !== figures.title) tile.window.title = figures.title;
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

/** Show the server's sentence, or why there is none; it is a live region, so it changes only when the words do. */
export function updateVerdict(state, failure = '') {
  const said = failure ? { severity: 'quiet', lead: 'No history.', text: sentence(failure), engine_id: '' } : state.verdict;
  const { severity, lead, text, shape, engine_id: engineId } = said;
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
