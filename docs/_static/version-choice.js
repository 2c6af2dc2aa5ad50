// Fills the list of versions, and goes to the same page of another one, or to its first page.
addEventListener("DOMContentLoaded", () => {
  const known = window.dpdescentVersions;
  if (!known) return;
  for (const choice of document.querySelectorAll(".version-choice")) {
    const {root, folder, page} = choice.dataset;
    choice.replaceChildren(...Object.keys(known.pages).map((name) => {
      const shown = name === known.stable ? `${name} (stable)` : name;
      return new Option(shown, name, false, name === folder);
    }));
    choice.addEventListener("change", () => {
      const there = known.pages[choice.value].includes(page) ? page : "index.html";
      location.href = `${root}${choice.value}/${there}`;
    });
  }
});
