/* Builds and changes the page's elements. */

/**
 * @template {Element} E
 * @typedef {new () => E} Kind A class of elements, such as HTMLInputElement.
 */

/**
 * @template {Element} [E=HTMLElement]
 * @param {unknown} element
 * @param {Kind<E>} [kind]
 * @returns {E | null}
 */
const ofKind = (element, kind) => (element instanceof (kind ?? HTMLElement) ? /** @type {E} */ (element) : null);

/**
 * Return the element with this id; a missing one is a bug in the template and throws.
 * @template {Element} [E=HTMLElement]
 * @param {string} id
 * @param {Kind<E>} [kind]
 */
export function byId(id, kind) {
  const element = ofKind(document.getElementById(id), kind);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/**
 * Return the first match; a missing one is a bug in the template and throws.
 * @template {Element} [E=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<E>} [kind]
 * @returns {E}
 */
export function required(root, selector, kind) {
  const element = find(root, selector, kind);
  if (!element) throw new Error(`the page has no ${selector}`);
  return element;
}

/**
 * Return the first match; null for none, or for one of another kind.
 * @template {Element} [E=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<E>} [kind]
 */
export function find(root, selector, kind) {
  return ofKind(root.querySelector(selector), kind);
}

/**
 * Return all matches of a kind, in page order.
 * @template {Element} [E=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {Kind<E>} [kind]
 */
export function findAll(root, selector, kind) {
  return [...root.querySelectorAll(selector)].flatMap((element) => ofKind(element, kind) ?? []);
}

/**
 * Return the target of an event or its closest ancestor that matches.
 * @template {Element} [E=HTMLElement]
 * @param {Event} event
 * @param {string} selector
 * @param {Kind<E>} [kind]
 */
export function closest({ target }, selector, kind) {
  return target instanceof Element ? ofKind(target.closest(selector), kind) : null;
}

/**
 * Return whether the target of an event or an ancestor matches.
 * @param {Event} event
 * @param {string} selector
 */
export function isWithin({ target }, selector) {
  return target instanceof Element && target.closest(selector) !== null;
}

/**
 * A new element with a class and children (elements or text).
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} className
 * @param {(Node | string)[]} children
 */
export function make(tag, className = '', ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/**
 * Change a text only when it differs: layout and screen readers receive real changes only.
 * @param {Node} target
 * @param {string} text
 */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * Return words as a sentence: a capital at its beginning, a full stop at its end.
 * @param {string} words
 */
export const sentence = (words) => (words ? words[0].toUpperCase() + words.slice(1).replace(/[^.]$/, '$&.') : '');

const SVG = 'http://www.w3.org/2000/svg';

/**
 * An icon of the sprite, for example icon('s-lost', 'shape shape-lost').
 * @param {string} symbol
 * @param {string} className
 */
export function icon(symbol, className = '') {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('class', `icon ${className}`.trim());
  svg.setAttribute('aria-hidden', 'true');
  const use = document.createElementNS(SVG, 'use');
  use.setAttribute('href', `#${symbol}`);
  svg.append(use);
  return svg;
}

/**
 * The shape of an engine state.
 * @param {string} state
 * @param {string} className
 */
export function stateShape(state, className = '') {
  return icon(`s-${state}`, `shape shape-${state} ${className}`);
}

/**
 * Turn an existing shape into that of another state, keeping its other classes.
 * @param {SVGElement} svg
 * @param {string} state
 */
export function changeShape(svg, state) {
  if (svg.dataset.state === state) return;
  svg.dataset.state = state;
  const kept = [...svg.classList].filter((name) => !/^shape-(?!loud)/.test(name));
  svg.setAttribute('class', [...kept, `shape-${state}`].join(' '));
  svg.firstElementChild?.setAttribute('href', `#s-${state}`);
}
