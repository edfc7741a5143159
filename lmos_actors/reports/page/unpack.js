// What is packed into the page of a report.

async function unpacked(id) {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n++) bytes[n] = text.charCodeAt(n);
  if (!('DecompressionStream' in window)) return new TextDecoder().decode(inflate(bytes));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))).text();
}
