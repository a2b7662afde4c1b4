import { useState } from "react";
import { createRoot } from "react-dom/client";
import "./style.css";

const VERSION = "one";

function Page() {
  const [count, setCount] = useState(0);
  return (
    <main>
      <h1>Version {VERSION}</h1>
      <p>{location.pathname}</p>
      <button onClick={() => setCount(count + 1)}>pressed {count}</button>
    </main>
  );
}

createRoot(document.getElementById("root")).render(<Page />);
