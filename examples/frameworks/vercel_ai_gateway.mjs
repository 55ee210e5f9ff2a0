// The Vercel AI SDK on any upstream, through a running gateway, in two of the dialects it speaks.
//
//   npm install ai zod @ai-sdk/openai-compatible @ai-sdk/anthropic
//   athena serve    # in another terminal, on any upstream
//   ATHENA_MODEL=... node examples/frameworks/vercel_ai_gateway.mjs

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = `${process.env.GATEWAY_URL ?? "http://127.0.0.1:12377"}/v1`;
const name = process.env.ATHENA_MODEL ?? "athena-demo";
const providers = {
  chat: createOpenAICompatible({ name: "athena", baseURL, apiKey: "unused" }),
  messages: createAnthropic({ baseURL, apiKey: "unused" }),
};

function question(provider, label) {
  const getWeather = tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      console.log(`${label}: called get_weather ${JSON.stringify({ city })}`);
      return `sunny, 21 °C in ${city}`;
    },
  });
  return {
    model: provider(name),
    prompt: "What is the weather in Tokyo?",
    tools: { get_weather: getWeather },
    stopWhen: stepCountIs(5),
    maxOutputTokens: 1000,
  };
}

for (const [api, provider] of Object.entries(providers)) {
  const whole = await generateText(question(provider, `${api} whole`));
  console.log(`${api} whole: answer ${whole.text}`);
  const streamed = streamText(question(provider, `${api} streamed`));
  await streamed.consumeStream();
  console.log(`${api} streamed: answer ${await streamed.text}`);
}
