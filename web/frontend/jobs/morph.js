/* Makes one element's content equal to another's with as few changes as it takes. */

/** Change the children of `from` into those of `to`, which is used up. Elements with an id keep their identity. */
export function morph(from, to) {
  const byId = new Map([...from.children].filter((child) => child.id).map((child) => [child.id, child]));
  const coming = new Set([...to.children].map((child) => child.id).filter(Boolean));
  let place = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const known = wanted.id ? byId.get(wanted.id) : undefined;
    byId.delete(wanted.id);
    // Moving `known` itself would take its focus, and a click under way; what stands before it leaves or waits its turn.
    while (known && place !== known) {
      const next = place.nextSibling;
      if (coming.has(place.id)) from.append(place);
      else place.remove();
      place = next;
    }
    // A page has white space at its start that the parser drops from a fragment.
    while (place && isBlank(place) && !isBlank(wanted)) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
    const current = known ?? place;
    if (current && alike(current, wanted)) {
      change(current, wanted);
      place = current.nextSibling;
    } else {
      from.insertBefore(wanted, place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function isBlank(node) {
  return node.nodeType === Node.TEXT_NODE && !node.data.trim();
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id ?? '') === (other.id ?? '');
}

function change(current, wanted) {
  if (current.nodeType !== Node.ELEMENT_NODE) {
    if (current.data !== wanted.data) current.data = wanted.data;
    return;
  }
  // What somebody unfolded stays so.
  const kept = current.nodeName === 'DETAILS' ? 'open' : '';
  for (const { name } of [...current.attributes]) if (!wanted.hasAttribute(name) && name !== kept) current.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (current.getAttribute(name) !== value) current.setAttribute(name, value);
  morph(current, wanted);
}
