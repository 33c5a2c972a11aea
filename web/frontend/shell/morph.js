/* Makes one element's content equal to another's with few changes. */

/**
 * Change the children of `from` into those of `to`, which is consumed. Elements with an id keep their identity.
 * @param {Element} from
 * @param {Element} to
 */
export function morph(from, to) {
  const byId = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
  const coming = new Set([...to.children].map((child) => child.id).filter(Boolean));
  /** @type {ChildNode | null} */
  let cursor = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const id = idOf(wanted);
    const known = id ? byId.get(id) : undefined;
    byId.delete(id);
    // Moving `known` would lose its focus and a click in progress: remove or postpone the nodes before it.
    while (known && cursor && cursor !== known) {
      const next = cursor.nextSibling;
      if (coming.has(idOf(cursor))) from.append(cursor);
      else cursor.remove();
      cursor = next;
    }
    // A page has white space at its start that the parser drops from a fragment.
    while (cursor && isBlank(cursor) && !isBlank(wanted)) {
      const next = cursor.nextSibling;
      cursor.remove();
      cursor = next;
    }
    const current = known ?? cursor;
    if (current && alike(current, wanted)) {
      change(current, wanted);
      cursor = current.nextSibling;
    } else {
      from.insertBefore(wanted, cursor);
    }
  }
  while (cursor) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}

/** @param {Node} node */
const idOf = (node) => (node instanceof Element ? node.id : '');

/** @param {Node} node */
function isBlank(node) {
  return node instanceof Text && !node.data.trim();
}

/**
 * @param {Node} one
 * @param {Node} other
 */
function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && idOf(one) === idOf(other);
}

/**
 * @param {Node} current
 * @param {Node} wanted
 */
function change(current, wanted) {
  if (!(current instanceof Element && wanted instanceof Element)) {
    if (current.nodeValue !== wanted.nodeValue) current.nodeValue = wanted.nodeValue;
    return;
  }
  // An open <details> stays open.
  const kept = current.nodeName === 'DETAILS' ? 'open' : '';
  for (const { name } of [...current.attributes])
    if (!wanted.hasAttribute(name) && name !== kept) current.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (current.getAttribute(name) !== value) current.setAttribute(name, value);
  morph(current, wanted);
}
