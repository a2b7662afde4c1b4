// Keeps a terminal from answering what programs ask it (which kind it is, where the cursor stands,
// its colours) when that is not its part: what is shown again was answered long ago, and of several
// browsers one answers.
const SEQUENCES = [
  { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" },
  { final: "n" }, { prefix: "?", final: "n" }, { prefix: ">", final: "q" },
  { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" },
];
const COLOURS = [4, 10, 11, 12];

// `isSilent` says at the moment of a question whether it is to stay without an answer.
export function silence(terminal, isSilent) {
  for (const sequence of SEQUENCES) terminal.parser.registerCsiHandler(sequence, isSilent);
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, isSilent);
  for (const number of COLOURS) {
    terminal.parser.registerOscHandler(number, (text) => /(^|;)\?/.test(text) && isSilent());
  }
}
