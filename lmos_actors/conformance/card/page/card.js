'use strict';
(() => {
  const form = document.getElementById('filters');
  const cases = [...document.querySelectorAll('.case')];
  const texts = new Map(cases.map((each) => [each, each.textContent.toLowerCase()]));
  const found = () => cases.filter((each) => !each.hidden);

  function show() {
    const verdicts = new Set([...form.querySelectorAll('[name=verdict]:checked')].map((box) => box.value));
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const each of cases) {
      each.hidden = !verdicts.has(each.dataset.verdict) || !words.every((word) => texts.get(each).includes(word));
    }
    for (const group of document.querySelectorAll('.group')) {
      group.hidden = !group.querySelector('.case:not([hidden])');
    }
    const number = found().length;
    document.getElementById('none').hidden = number > 0;
    document.getElementById('shown').textContent = `${number} of ${cases.length}`;
  }

  function goTo() {
    const there = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!there || !there.matches('.case')) return;
    there.hidden = false;
    there.open = true;
    there.scrollIntoView();
  }

  form.addEventListener('input', show);
  form.addEventListener('submit', (event) => event.preventDefault());
  document.getElementById('open').addEventListener('click', () => found().forEach((each) => { each.open = true; }));
  document.getElementById('close').addEventListener('click', () => found().forEach((each) => { each.open = false; }));
  window.addEventListener('hashchange', goTo);
  form.hidden = false;
  show();
  goTo();
  document.documentElement.dataset.ready = 'yes';
})();
