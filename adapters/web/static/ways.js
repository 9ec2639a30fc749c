// The menu of the other pages, as the server lists them for whoever looks.

const menu = document.getElementById("ways");
const list = document.getElementById("ways-list");

/** Fills the menu; what the bot and its visitor are called, or nothing when it cannot be asked. */
export async function showWays() {
  const answer = await fetch("/api/ways").catch(() => null);
  if (!answer?.ok) return null;
  const found = await answer.json();
  list.replaceChildren(
    ...found.ways.map(({ path, label }) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = path;
      link.textContent = label;
      if (path === location.pathname) link.setAttribute("aria-current", "page");
      item.append(link);
      return item;
    }),
  );
  return found;
}

menu.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary").focus();
  event.stopPropagation();
});

document.addEventListener("click", ({ target }) => {
  if (!menu.contains(target)) menu.open = false;
});
