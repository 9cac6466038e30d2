"use strict";
(() => {
  const PAGE = 10, UNSURE = 0.9, LEAST_SHOWN = 0.001, IMPOSSIBLE = -32768;
  const meta = JSON.parse(document.getElementById("meta").textContent);
  const section = document.getElementById("documents");
  const find = (selector) => section.querySelector(selector);
  const names = meta.labels, K = meta.lfs.length;

  function element(tag, className, text) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const percent = (value, digits = 1) => (100 * value).toFixed(digits) + " %";

  // the block that pyro_chmm/inspection/documents.py packs
  async function unpack() {
    const text = atob(document.getElementById("packed").textContent.trim());
    const zipped = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) zipped[i] = text.charCodeAt(i);
    const stream = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
    const block = await new Response(stream).arrayBuffer();
    const length = new DataView(block).getUint32(0, true);
    const data = JSON.parse(new TextDecoder().decode(new Uint8Array(block, 4, length)));
    let start = 4 + length;
    for (const [name, kind, size] of data.arrays) {
      data[name] = new (kind === "i2" ? Int16Array : Uint16Array)(block, start, size);
      start += 2 * size;
    }
    const count = data.ids.length;
    for (const name of ["offsets", "keptStart", "columnStart", "evidenceStart", "messageStart"]) data[name] = new Uint32Array(count + 1);
    for (let d = 0; d < count; d++) {
      const tokens = data.tokens[d].length, kept = data.keptCounts[d], columns = data.columnCounts[d];
      data.offsets[d + 1] = data.offsets[d] + tokens;
      data.keptStart[d + 1] = data.keptStart[d] + kept;
      data.columnStart[d + 1] = data.columnStart[d] + columns;
      data.evidenceStart[d + 1] = data.evidenceStart[d] + kept * columns;
      data.messageStart[d + 1] = data.messageStart[d] + kept * tokens;
    }
    return data;
  }

  function filtersOf(data) {
    const all = [], overrode = [], unsure = [], wrong = [], least = [];
    for (let d = 0; d < data.ids.length; d++) {
      let differs = false, isWrong = false, lowest = 65535;
      for (let n = data.offsets[d]; n < data.offsets[d + 1]; n++) {
        if (data.label[n] !== data.vote[n]) differs = true;
        if (data.gold && data.label[n] !== data.gold[n]) isWrong = true;
        if (data.confidence[n] < lowest) lowest = data.confidence[n];
      }
      least.push(lowest / 65535);
      all.push(d);
      if (differs) overrode.push(d);
      if (isWrong) wrong.push(d);
      if (least[d] < UNSURE) unsure.push(d);
    }
    unsure.sort((a, b) => least[a] - least[b]);
    const filters = [["all", "All", all], ["overrode", "Model overrode the majority", overrode], ["unsure", "Least sure first", unsure]];
    if (data.gold) filters.push(["gold", "Gold disagrees", wrong]);
    return { filters, least };
  }

  // the parts of one token's posterior, in nats, over the labels that its document is shown with
  function parts(data, d, t) {
    const kept = Array.from(data.kept.subarray(data.keptStart[d], data.keptStart[d + 1])), M = kept.length;
    const first = data.offsets[d], n = first + t;
    let column = 0;
    const votes = [];
    const sum = new Array(M).fill(0);
    for (let k = 0; k < K; k++) {
      const distinct = new Set();
      for (let m = first; m < data.offsets[d + 1]; m++) if (data.said[m * K + k] >= 0) distinct.add(data.said[m * K + k]);
      const ordered = [...distinct].sort((a, b) => a - b), said = data.said[n * K + k], weight = data.weights[data.weight[n * K + k]];
      const mine = column + ordered.indexOf(said), vote = { lf: meta.lfs[k], said, weight, reliability: null, evidence: null };
      if (said >= 0) {
        const reliability = data.reliability[data.columnStart[d] + mine] / 10000;
        if (reliability >= 0) vote.reliability = reliability;
        if (weight > 0) {
          const start = data.evidenceStart[d] + mine * M;
          vote.evidence = kept.map((_, j) => weight * data.evidence[start + j] / 1000);
          vote.evidence.forEach((value, j) => { sum[j] += value; });
        }
      }
      votes.push(vote);
      column += ordered.length;
    }
    const message = (name) => kept.map((_, j) => {
      const stored = data[name][data.messageStart[d] + t * M + j];
      return stored === IMPOSSIBLE ? -Infinity : stored / 1000;
    });
    const left = message("left"), right = message("right");
    const shares = (logs) => {
      const top = Math.max(...logs), weights = logs.map((value) => Math.exp(value - top)), total = weights.reduce((a, b) => a + b, 0);
      return weights.map((value) => value / total);
    };
    const posterior = shares(sum.map((value, j) => value + left[j] + right[j]));
    return { kept, votes, sum, evidence: shares(sum), left: left.map(Math.exp), right: right.map(Math.exp), posterior };
  }

  function chip(label, wrong) {
    if (label < 0) return element("span", "", "");
    if (label === 0) return element("span", wrong ? "o wrong" : "o", "·");
    const made = element("span", wrong ? "chip wrong" : "chip", names[label]);
    made.style.setProperty("--hue", Math.round(210 + Math.floor((label - 1) / 2) * 137.5) % 360);
    return made;
  }

  function explanation(data, d, t) {
    const n = data.offsets[d] + t, found = parts(data, d, t), box = element("div", "why");
    const shown = found.kept.map((_, j) => j).filter((j) =>
      found.posterior[j] >= LEAST_SHOWN || found.kept[j] === data.label[n] || (data.gold && found.kept[j] === data.gold[n]) ||
      found.votes.some((vote) => vote.said === found.kept[j]));
    const intro = element("p", "", "“" + data.tokens[d][t] + "” is ");
    intro.append(element("b", "", data.label[n] < 0 ? "impossible under the model" : names[data.label[n]]));
    intro.append(" with posterior " + percent(data.confidence[n] / 65535));
    intro.append("; majority vote says " + names[data.vote[n]] + (data.gold ? ", gold " + names[data.gold[n]] : "") + ".");
    const table = element("table"), head = element("tr");
    for (const text of ["LF", "says", "weight", "reliability", ...shown.map((j) => names[found.kept[j]])]) {
      const cell = element("th", "", text);
      cell.scope = "col";
      head.append(cell);
    }
    table.append(element("thead"), element("tbody"));
    table.tHead.append(head);
    const row = (name, cells, className) => {
      const made = element("tr", className), header = element("th", "", name);
      header.scope = "row";
      made.append(header, ...cells);
      table.tBodies[0].append(made);
    };
    const blank = () => [element("td"), element("td"), element("td")];
    for (const vote of found.votes) {
      const says = element("td");
      says.append(chip(vote.said, false));
      row(vote.lf, [
        says, element("td", "", vote.said < 0 ? "" : String(Math.round(vote.weight * 100) / 100)),
        element("td", "", vote.reliability === null ? "" : vote.reliability.toFixed(2)),
        ...shown.map((j) => element("td", "", vote.evidence ? vote.evidence[j].toFixed(2) : "")),
      ]);
    }
    row("sum: log evidence", [...blank(), ...shown.map((j) => element("td", "", found.sum[j].toFixed(2)))], "sum");
    for (const [name, values] of [["votes alone", found.evidence], ["× left neighbors", found.left], ["× right neighbors", found.right], ["= posterior", found.posterior]]) {
      const cells = shown.map((j) => {
        const cell = element("td", "share", percent(values[j]));
        cell.style.setProperty("--size", values[j].toFixed(4));
        return cell;
      });
      row(name, [...blank(), ...cells], name === "= posterior" ? "answer" : "");
    }
    const scroll = element("div", "scroll");
    scroll.append(table);
    box.append(intro, scroll, element("small", "", "Log evidence: weight × log p(the LF says so | true label). The posterior is the product of the three rows above it, divided by its sum."));
    return box;
  }

  const width = (text) => 8.4 * text.length + 15;
  function linesOf(data, d, rows, room) {
    const lines = [[]];
    let used = 0;
    data.tokens[d].forEach((word, t) => {
      const n = data.offsets[d] + t;
      const labels = rows.map((row) => row.at(n)).filter((label) => label > 0).map((label) => width(names[label]) + 6);
      const needed = Math.min(Math.max(width(word), 48, ...labels), 250);
      if (used + needed > room && lines[lines.length - 1].length) {
        lines.push([]);
        used = 0;
      }
      lines[lines.length - 1].push(t);
      used += needed;
    });
    return lines;
  }

  function article(data, d, least, room, nameWidth) {
    const made = element("article"), title = element("h3", "", data.ids[d]), count = data.tokens[d].length;
    made.style.setProperty("--names", nameWidth + "px");
    title.append(element("span", "note", count ? "least sure token " + percent(least[d]) : "empty"));
    made.append(title);
    if (!count) return made;
    const rows = [{ name: "model", at: (n) => data.label[n], model: true }, { name: "posterior", at: () => -1, posterior: true }];
    if (data.gold) rows.push({ name: "gold", at: (n) => data.gold[n] });
    rows.push({ name: "majority vote", at: (n) => data.vote[n] });
    let first = true;
    for (let k = 0; k < K; k++) {
      let fires = false;
      for (let n = data.offsets[d]; n < data.offsets[d + 1]; n++) if (data.said[n * K + k] > 0) fires = true;
      if (fires) rows.push({ name: meta.lfs[k], at: (n) => data.said[n * K + k], first });
      if (fires) first = false;
    }
    for (const line of linesOf(data, d, rows, room)) {
      const block = element("div"), scroll = element("div", "scroll tokens-scroll"), table = element("table", "tokens"), words = element("tr");
      words.append(element("th"));
      for (const t of line) {
        const cell = element("th"), button = element("button", "word", data.tokens[d][t]);
        button.type = "button";
        button.setAttribute("aria-expanded", "false");
        button.addEventListener("click", () => {
          const open = button.getAttribute("aria-expanded") === "true";
          for (const other of made.querySelectorAll(".word")) other.setAttribute("aria-expanded", "false");
          for (const box of made.querySelectorAll(".why")) box.remove();
          if (open) return;
          button.setAttribute("aria-expanded", "true");
          block.append(explanation(data, d, t));
        });
        cell.append(button);
        words.append(cell);
      }
      table.append(words);
      for (const row of rows) {
        const tr = element("tr", row.first ? "first-lf" : ""), header = element("th", "", row.name);
        header.scope = "row";
        header.title = row.name;
        tr.append(header);
        for (const t of line) {
          const n = data.offsets[d] + t, cell = element("td");
          if (row.posterior) {
            const sure = data.confidence[n] / 65535;
            cell.className = sure < UNSURE ? "unsure" : "sure";
            cell.textContent = Math.round(100 * sure) + " %";
          } else cell.append(chip(row.at(n), Boolean(row.model && data.gold && data.label[n] !== data.gold[n])));
          tr.append(cell);
        }
        table.append(tr);
      }
      scroll.append(table);
      block.append(scroll);
      made.append(block);
    }
    return made;
  }

  async function start() {
    const data = await unpack(), { filters, least } = filtersOf(data);
    let chosen = filters[0], page = 0;
    const list = find(".list"), pager = find(".pager");
    function show() {
      const numbers = chosen[2], shown = numbers.slice(page * PAGE, (page + 1) * PAGE);
      const inside = list.clientWidth - 32, nameWidth = inside < 560 ? 84 : 150;
      list.replaceChildren(...shown.map((d) => article(data, d, least, inside - nameWidth - 16, nameWidth)));
      if (!numbers.length) list.append(element("p", "", "No document is like that."));
      pager.hidden = numbers.length <= PAGE;
      find(".place").textContent = (page * PAGE + 1).toLocaleString("en") + "–" + (page * PAGE + shown.length).toLocaleString("en") + " of " + numbers.length.toLocaleString("en");
      find(".previous").disabled = page === 0;
      find(".next").disabled = (page + 1) * PAGE >= numbers.length;
    }
    for (const filter of filters) {
      const button = element("button", "", filter[1] + " ");
      button.type = "button";
      button.dataset.filter = filter[0];
      button.setAttribute("aria-pressed", String(filter === chosen));
      button.append(element("span", "", filter[2].length.toLocaleString("en")));
      button.addEventListener("click", () => {
        chosen = filter;
        page = 0;
        for (const other of find(".filters").children) other.setAttribute("aria-pressed", String(other === button));
        show();
      });
      find(".filters").append(button);
    }
    find(".previous").addEventListener("click", () => { page--; show(); });
    find(".next").addEventListener("click", () => { page++; show(); });
    let lastWidth = list.clientWidth, timer;
    window.addEventListener("resize", () => {
      if (list.clientWidth === lastWidth) return; // a phone's address bar comes and goes
      lastWidth = list.clientWidth;
      clearTimeout(timer);
      timer = setTimeout(show, 150);
    });
    show();
    section.dataset.ready = "true";
  }

  start().catch((error) => {
    find(".list").replaceChildren(element("p", "", "The documents cannot be shown: " + error.message + ". A browser of 2023 or later is needed."));
  });
})();
