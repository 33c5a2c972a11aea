/* Building and changing the page's elements. */

/** The element with this id; it is part of the template, so a missing one is a bug worth an exception. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** A new element with a class and children (elements or text). */
export function make(tag, className = '', ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Change a text only when it differs: layout and screen readers are told of real news alone. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/** Words as a sentence: a capital at its beginning, a full stop at its end. */
export const sentence = (words) => (words ? words[0].toUpperCase() + words.slice(1).replace(/[^.]$/, '$&.') : '');

const SVG = 'http://www.w3.org/2000/svg';

/** An icon of the sprite, for example icon('s-lost', 'shape shape-lost'). */
export function icon(symbol, className = '') {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', `icon ${className}`.trim());
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#${symbol}`);
  svg.append(use);
  return svg;
}

/** The shape of an engine state. */
export function stateShape(state, className = '') {
  return icon(`s-${state}`, `shape shape-${state} ${className}`);
}

/** Turn an existing shape into that of another state, keeping its other classes. */
export function changeShape(svg, state) {
  if (svg.dataset.state === state) return;
  svg.dataset.state = state;
  const kept = [...svg.classList].filter((name) => !/^shape-(?!loud)/.test(name));
  svg.setAttribute('class', [...kept, `shape-${state}`].join(' '));
  svg.firstElementChild.setAttribute('href', `#s-${state}`);
}
