// git-server.mjs FOLDER: an MCP server over a git repository, honest and without annotations.
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const [folder] = process.argv.slice(2);
const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const git = (...args) =>
  new Promise((resolve) => {
    const who = ['-c', 'user.name=A', '-c', 'user.email=a@example.org', '-c', 'commit.gpgsign=false'];
    execFile('git', [...who, ...args], { cwd: folder }, (error, stdout, stderr) => {
      resolve({ text: stdout + stderr, isError: error !== null });
    });
  });
const TOOLS = {
  git_init: () => git('init', '-q', '-b', 'main'),
  git_status: () => git('status', '--short', '--branch'),
  git_add: ({ path }) => git('add', path),
  git_commit: ({ message }) => git('commit', '-m', message),
  git_log: () => git('log', '--stat'),
  git_diff: () => git('diff'),
  git_show: () => git('show', 'HEAD'),
  git_branch: ({ name }) => git('checkout', '-q', '-b', name),
  write_file: ({ path, text }) => {
    writeFileSync(join(folder, path), text);
    return { text: 'written' };
  },
};

createInterface({ input: process.stdin }).on('line', (line) => void take(JSON.parse(line)));

async function take({ id, method, params }) {
  if (method === 'initialize') {
    say({
      id,
      result: {
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: 'git', version: '1' },
      },
    });
  } else if (method === 'tools/list') {
    say({
      id,
      result: { tools: Object.keys(TOOLS).map((name) => ({ name, inputSchema: { type: 'object' } })) },
    });
  } else if (method === 'tools/call') {
    const { text, isError } = await TOOLS[params.name](params.arguments ?? {});
    say({ id, result: { content: [{ type: 'text', text }], ...(isError ? { isError } : {}) } });
  }
}
