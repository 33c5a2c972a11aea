/* Keeps the browser's time zone in a cookie, so that the server writes times in it for people who chose no other. */

const YEAR_S = 31_536_000;

export function keepTimeZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `time_zone=${zone}; Path=/; Max-Age=${YEAR_S}; SameSite=Lax`;
}
