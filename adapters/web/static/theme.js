// Stands in the page and runs before it is painted: the theme that was chosen in this browser, and
// whether this is a temporary chat. What moves the page is asked for once it is painted.

if (location.pathname.endsWith("/temporary")) document.documentElement.classList.add("temporary");

try {
  const [, theme] = document.cookie.match(/(?:^|; )confidant_theme=(light|dark)/) ?? [];
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Cookies are forbidden: the system's counts.
}

addEventListener("DOMContentLoaded", () => {
  const begin = () => document.body.append(document.getElementById("later").content);
  if (document.hidden) begin(); // nothing is painted
  else requestAnimationFrame(() => setTimeout(begin));
});
