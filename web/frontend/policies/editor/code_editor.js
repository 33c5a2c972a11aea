/* The JSON editor: CodeMirror in place of the form's text area, which still carries the text to the server. */
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { json } from '@codemirror/lang-json';
import { HighlightStyle, bracketMatching, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { lintGutter, setDiagnostics } from '@codemirror/lint';
import { EditorState } from '@codemirror/state';
import { EditorView, highlightActiveLineGutter, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

/** @typedef {{ from: number, to: number, message: string }} Mark a problem and its offsets */

const THEME = EditorView.theme({
  '&': { height: '100%', minHeight: '120px', fontSize: '12px', color: 'var(--ink)', backgroundColor: 'var(--field)' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--font-code)', lineHeight: '19px' },
  '.cm-gutters': { color: 'var(--ink-3)', backgroundColor: 'var(--field)', border: '0', fontSize: '11px' },
  '.cm-content': { caretColor: 'var(--ink)', padding: 'var(--s-2) 0' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-activeLineGutter': { color: 'var(--ink)', backgroundColor: 'transparent' },
  '.cm-tooltip': { color: 'var(--ink)', backgroundColor: 'var(--surface)', border: '1px solid var(--line)' },
});
const COLOURS = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--ink)' },
  { tag: [tags.string, tags.number, tags.bool, tags.null], color: 'var(--accent)' },
]);

/**
 * Show the text area's text in an editor inside `pane`. Typing changes the area and fires its input event.
 * @param {HTMLElement} pane its nonce permits the editor's styles
 * @param {HTMLTextAreaElement} area
 */
export function startCodeEditor(pane, area) {
  let typed = true;
  const view = new EditorView({
    parent: pane,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        EditorView.cspNonce.of(pane.nonce),
        EditorState.readOnly.of(area.readOnly),
        EditorView.contentAttributes.of({
          'aria-label': area.getAttribute('aria-label') ?? '',
          'aria-describedby': area.getAttribute('aria-describedby') ?? '',
          // Checkers of accessibility know no focus by contenteditable.
          tabindex: '0',
        }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged || !typed) return;
          area.value = update.state.doc.toString();
          area.dispatchEvent(new Event('input'));
        }),
        lineNumbers(),
        highlightActiveLineGutter(),
        history(),
        indentOnInput(),
        bracketMatching(),
        json(),
        syntaxHighlighting(COLOURS),
        lintGutter(),
        keymap.of([...defaultKeymap.filter(({ key }) => key !== 'Mod-Enter'), ...historyKeymap]),
        THEME,
      ],
    }),
  });
  area.hidden = true;
  return {
    /** Take over the area's text if a program changed it; only what differs is replaced. */
    draw() {
      const [before, after] = [view.state.doc.toString(), area.value];
      if (before === after) return;
      const longest = Math.min(before.length, after.length);
      let from = 0;
      while (from < longest && before[from] === after[from]) from += 1;
      let same = 0;
      while (same < longest - from && before.at(-1 - same) === after.at(-1 - same)) same += 1;
      typed = false;
      view.dispatch({
        changes: { from, to: before.length - same, insert: after.slice(from, after.length - same) },
      });
      typed = true;
    },
    /**
     * Mark the places of errors, and no others.
     * @param {Mark[]} marks
     */
    mark(marks) {
      view.dispatch(
        setDiagnostics(
          view.state,
          marks.map((mark) => ({ ...mark, severity: 'error' })),
        ),
      );
    },
  };
}
