// Forms of settings that say what is not saved yet, and buttons that copy.

const form = document.querySelector(".options-form");
let isSaving = false;

function isChanged(field) {
  if (field.tagName !== "SELECT") return field.value !== field.defaultValue;
  const options = [...field.options];
  // A choice that nothing is marked in begins with its first.
  const first = Math.max(0, options.findIndex((each) => each.defaultSelected));
  return field.selectedIndex !== first;
}

function look() {
  const fields = [...form.querySelectorAll(".option :is(input, select)")];
  let count = 0;
  for (const field of fields) {
    const changed = isChanged(field);
    field.closest(".option").classList.toggle("changed", changed);
    count += changed;
  }
  const unsaved = form.querySelector(".unsaved");
  const isUnsaved = count > 0 || "unsaved" in form.dataset;
  form.querySelector(".save").classList.toggle("waits", isUnsaved);
  form.querySelector("[type=reset]").hidden = count === 0;
  const words = isUnsaved ? unsaved.dataset.words : "";
  if (unsaved.textContent !== words) unsaved.textContent = words;
  if (isUnsaved) document.querySelector(".section > [role=status]")?.remove(); // "Saved" no more
  return isUnsaved;
}

if (form) {
  form.addEventListener("input", look);
  form.addEventListener("reset", () => setTimeout(look));
  form.addEventListener("submit", () => (isSaving = true));
  addEventListener("beforeunload", (event) => {
    if (!isSaving && look()) event.preventDefault();
  });
  addEventListener("pageshow", () => {
    isSaving = false;
    look();
  });
  look();
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.value ?? source.textContent);
    } catch {
      // Plain http away from this machine has no clipboard: the old way still works.
      if (source.select) source.select();
      else getSelection().selectAllChildren(source);
      document.execCommand("copy");
      button.focus();
    }
    button.textContent = button.dataset.done;
    setTimeout(() => (button.textContent = label), 1500);
  });
}

// What a link leads to is opened.
const aim = document.getElementById(location.hash.slice(1));
if (aim?.tagName === "DETAILS") aim.open = true;
