/* A text area with line numbers; errors mark their line. */

import { byId, findAll, make, setText } from '../../shell/element.js';
/** @import { JsonError } from './json_spans.js' */

/**
 * Keep the gutter in step with the text; return {markError} for the line with a syntax error.
 * @param {HTMLTextAreaElement} area
 */
export function startCodeEditor(area) {
  const gutter = byId('gutter');
  let wrong = 0;
  const draw = () => {
    const lines = area.value.split('\n').length;
    while (gutter.childElementCount > lines) gutter.lastElementChild?.remove();
    while (gutter.childElementCount < lines) gutter.append(make('span', '', String(gutter.childElementCount + 1)));
    for (const marked of findAll(gutter, '.wrong')) marked.classList.remove('wrong');
    gutter.children[wrong - 1]?.classList.add('wrong');
    gutter.scrollTop = area.scrollTop;
  };
  area.addEventListener(
    'scroll',
    () => {
      gutter.scrollTop = area.scrollTop;
    },
    { passive: true },
  );
  area.addEventListener('input', draw);
  draw();
  return {
    draw,
    /** @param {JsonError | null} error */
    markError(error) {
      wrong = error ? error.line : 0;
      setText(
        byId('json-problem'),
        error
          ? `Line ${error.line}, column ${error.column}: ${error.message}. ` +
              'The form keeps the last values that could be read.'
          : '',
      );
      draw();
    },
  };
}
