// Stands in the page and runs before it is painted: the theme that was chosen in this browser, and
// whether this is a temporary chat.

if (location.pathname.endsWith("/temporary")) document.documentElement.classList.add("temporary");

try {
  const [, theme] = document.cookie.match(/(?:^|; )confidant_theme=(light|dark)/) ?? [];
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Cookies are forbidden: the system's counts.
}
