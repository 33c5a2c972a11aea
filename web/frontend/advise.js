/* Announces to a gateway that this page's session will send a request soon: one call per burst of typing. Budget: 1 KB.
 *
 * advise(input, {url, token}) on the page of a chat; `token` returns the session's token, or a promise of it.
 * The call is text/plain with the token in its body: no preflight, and it survives the page's unload.
 */
const PAUSE_MS = 3000;

/**
 * @param {HTMLInputElement | HTMLTextAreaElement} input
 * @param {{ url: string, token: () => string | Promise<string> }} session
 */
const advise = (input, { url, token }) => {
  let last = -Infinity;
  const call = async () => {
    const now = performance.now();
    const quiet = now - last > PAUSE_MS;
    last = now;
    if (!quiet || !input.value) return;
    try {
      const body = JSON.stringify({ token: await token() });
      await fetch(url, { method: 'POST', mode: 'no-cors', keepalive: true, credentials: 'omit', body });
    } catch {
      // A lost advisory only loses its benefit.
    }
  };
  input.addEventListener('input', call);
  return () => input.removeEventListener('input', call);
};
Object.assign(window, { headwayAdvise: advise });
