// What a request may be told instead of an answer.

export class Refusal extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}
