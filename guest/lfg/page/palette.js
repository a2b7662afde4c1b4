// The colours and the letters of the terminals.
export const PALETTE = {
  background: "#101418", foreground: "#d3dae2", cursor: "#79c0b0", cursorAccent: "#101418",
  selectionBackground: "#2f4550", selectionInactiveBackground: "#26323b",
  black: "#1c232a", red: "#e07a7a", green: "#8fbf7f", yellow: "#d9b36c", blue: "#7fa9d6",
  magenta: "#b995d0", cyan: "#79c0b0", white: "#c6ced6",
  brightBlack: "#61707e", brightRed: "#ef9a9a", brightGreen: "#aad69b", brightYellow: "#ecca8c",
  brightBlue: "#a3c4e8", brightMagenta: "#d0b3e2", brightCyan: "#9bd8cb", brightWhite: "#f0f4f8",
};
export const FONT = 'ui-monospace, "SF Mono", "Cascadia Mono", "JetBrains Mono", Menlo, Consolas,'
  + ' "DejaVu Sans Mono", monospace';
