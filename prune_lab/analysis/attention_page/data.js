// What the page holds, and the weights of one head in one sentence pair.

const content = JSON.parse(document.getElementById("data").textContent);
const siteByName = new Map(content.sites.map((site) => [site.name, site]));
const decoded = new Map();

// The tokens that read at a site, and those that are read.
function tokensAt(pair, site) {
  const { source, target } = content.pairs[pair];
  return {
    queries: site.kind === "encoder.self" ? source : target,
    keys: site.kind === "decoder.self" ? target : source,
  };
}

// The steps of all heads of a site in one Uint16Array, decoded when they are first asked for.
function stepsOf(pair, site) {
  const index = content.sites.indexOf(site);
  const key = `${pair} ${index}`;
  if (!decoded.has(key)) {
    const bytes = atob(content.pairs[pair].weights[index]);
    const steps = new Uint16Array(bytes.length / 2);
    for (let place = 0; place < steps.length; place += 1) {
      steps[place] = bytes.charCodeAt(2 * place) + 256 * bytes.charCodeAt(2 * place + 1);
    }
    decoded.set(key, steps);
  }
  return decoded.get(key);
}

// weight(query, key) of a head, given by its original number.
function weightsOf(pair, site, number) {
  const steps = stepsOf(pair, site);
  const { queries, keys } = tokensAt(pair, site);
  const start = site.heads.findIndex((head) => head.number === number) * queries.length * keys.length;
  return (query, key) => steps[start + query * keys.length + key] / content.steps;
}

// Whether a weight is there and reaches a threshold, which rounding to a step does not decide.
const reaches = (weight, least) => weight > 0 && weight >= least - 0.5 / content.steps;

// Entries {query, key, weight} that reach a threshold, row by row.
function entriesFrom(weight, { queries, keys }, least) {
  const found = [];
  for (let query = 0; query < queries.length; query += 1) {
    for (let key = 0; key < keys.length; key += 1) {
      const value = weight(query, key);
      if (reaches(value, least)) found.push({ query, key, weight: value });
    }
  }
  return found;
}
