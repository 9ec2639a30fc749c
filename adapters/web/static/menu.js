// Moving within a menu by the keyboard.

const STEPS = ["ArrowDown", "ArrowUp", "Home", "End"];

/** Whether a key leads to another choice. */
export function isStep({ key }) {
  return STEPS.includes(key);
}

/** Focuses the choice that a key leads to. */
export function move({ key }, choices) {
  const place = choices.indexOf(document.activeElement);
  const next = {
    ArrowDown: (place + 1) % choices.length,
    ArrowUp: (place - 1 + choices.length) % choices.length,
    Home: 0,
    End: choices.length - 1,
  };
  choices[next[key]].focus();
}
