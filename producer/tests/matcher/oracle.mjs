// Says for each [pattern, subject] line of JSON on standard input what JavaScript says: "match",
// "none" or "invalid".
import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
  const [pattern, subject] = JSON.parse(line);
  let answer = "invalid";
  try {
    answer = new RegExp(pattern).test(subject) ? "match" : "none";
  } catch {}
  console.log(answer);
}
