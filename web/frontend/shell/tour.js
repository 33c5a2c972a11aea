/* The tour of the first visit: a cookie stores the step. */

const YEAR_S = 31_536_000;

/** Store the step named by a clicked link or button, before the link opens. */
export function startTour() {
  for (const element of document.querySelectorAll('[data-tour]')) {
    element.addEventListener('click', () => {
      const step = element.getAttribute('data-tour');
      document.cookie = `tour=${step}; Path=/; Max-Age=${YEAR_S}; SameSite=Lax`;
      if (step === 'done') document.getElementById('tour')?.remove();
    });
  }
}
