/** The words that may leave in place of what a span says; anything else is `other`. */

export const OPERATIONS: ReadonlySet<string> = new Set([
  'chat',
  'create_agent',
  'embeddings',
  'execute_tool',
  'generate_content',
  'invoke_agent',
  'invoke_workflow',
  'plan',
  'retrieval',
  'text_completion',
]);

export const METHODS: ReadonlySet<string> = new Set([
  'completion/complete',
  'elicitation/create',
  'initialize',
  'logging/setLevel',
  'notifications/cancelled',
  'notifications/initialized',
  'notifications/message',
  'notifications/progress',
  'notifications/prompts/list_changed',
  'notifications/resources/list_changed',
  'notifications/resources/updated',
  'notifications/roots/list_changed',
  'notifications/tools/list_changed',
  'ping',
  'prompts/get',
  'prompts/list',
  'resources/list',
  'resources/read',
  'resources/subscribe',
  'resources/templates/list',
  'resources/unsubscribe',
  'roots/list',
  'sampling/createMessage',
  'server/discover',
  'tools/call',
  'tools/list',
]);

export const PROVIDERS: ReadonlySet<string> = new Set([
  'anthropic',
  'aws.bedrock',
  'azure.ai.inference',
  'azure.ai.openai',
  'cohere',
  'deepseek',
  'gcp.gemini',
  'gcp.gen_ai',
  'gcp.vertex_ai',
  'groq',
  'ibm.watsonx.ai',
  'mistral_ai',
  'openai',
  'perplexity',
  'x_ai',
]);

export const EVENTS: ReadonlySet<string> = new Set([
  'api_error',
  'api_request',
  'claude_code.api_error',
  'claude_code.api_request',
  'claude_code.tool_decision',
  'claude_code.tool_result',
  'claude_code.user_prompt',
  'gen_ai.assistant.message',
  'gen_ai.choice',
  'gen_ai.client.inference.operation.details',
  'gen_ai.evaluation.result',
  'gen_ai.system.message',
  'gen_ai.tool.message',
  'gen_ai.user.message',
  'tool_decision',
  'tool_result',
  'user_prompt',
]);

/** By the number that OTLP has for them. */
export const SPAN_KINDS = ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'] as const;

export const word = (words: ReadonlySet<string>, text: string): string => (words.has(text) ? text : 'other');
