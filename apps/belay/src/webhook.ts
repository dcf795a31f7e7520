/** `belay webhook`: who is told when sessions settle. */

import {
  type DeliveryList,
  WEBHOOK_EVENTS,
  type WebhookCreated,
  type WebhookList,
  type WebhookRemoved,
} from '@belay/contracts/http';
import { type Command, Option } from 'commander';
import { type AdminOptions, asAdmin, projectOf, projectOption } from './admin-options.js';
import { readConfig } from './config.js';
import { columns, print, printable, styleFor } from './output.js';
import { whole } from './option-values.js';
import type { Service } from './service.js';
import { pageWidth } from './text-width.js';

interface WebhookOptions extends AdminOptions {
  readonly project?: string;
}

async function asked(options: WebhookOptions): Promise<{ service: Service; path: string }> {
  const config = readConfig();
  const service = await asAdmin(config, options);
  return { service, path: `/v1/projects/${await projectOf(config, options.project)}/webhooks` };
}

async function add(
  url: string,
  options: WebhookOptions & { readonly event?: readonly string[] },
): Promise<void> {
  const { service, path } = await asked(options);
  const made = await service.json<WebhookCreated>('POST', path, {
    url,
    events: options.event ?? WEBHOOK_EVENTS,
  });
  await print(
    options.json,
    made,
    () =>
      `${made.secret}\n\nWebhook ${made.id}: ${made.events.join(', ')} go to ${printable(made.url)}.\n` +
      'The secret is shown once: with it the receiver checks `webhook-signature` (Standard Webhooks).\n',
  );
}

async function list(options: WebhookOptions): Promise<void> {
  const { service, path } = await asked(options);
  const webhooks: WebhookList['webhooks'] = [];
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: WebhookList = await service.json('GET', `${path}${cursor}`);
    webhooks.push(...page.webhooks);
    cursor = page.next === undefined ? undefined : `?cursor=${encodeURIComponent(page.next)}`;
  }
  await print(options.json, { webhooks }, () =>
    webhooks.length === 0
      ? 'No webhooks.\n'
      : columns(
          webhooks.map(({ id, url, events }) => [id, `${printable(url)} ${events.join(', ')}`]),
          '',
          pageWidth(),
        ),
  );
}

async function remove(id: string, options: WebhookOptions): Promise<void> {
  const { service, path } = await asked(options);
  const removed = await service.json<WebhookRemoved>('DELETE', `${path}/${encodeURIComponent(id)}`);
  await print(
    options.json,
    removed,
    () => `Removed ${removed.id}; what waits for it is not sent any more.\n`,
  );
}

async function deliveries(id: string, options: WebhookOptions & { readonly limit: number }): Promise<void> {
  const { service, path } = await asked(options);
  const found: DeliveryList['deliveries'] = [];
  let page: DeliveryList;
  let cursor = '';
  do {
    const most = Math.min(1000, options.limit - found.length);
    page = await service.json('GET', `${path}/${encodeURIComponent(id)}/deliveries?limit=${most}${cursor}`);
    found.push(...page.deliveries);
    cursor = `&cursor=${encodeURIComponent(page.next ?? '')}`;
  } while (page.next !== undefined && found.length < options.limit);
  const style = styleFor(readConfig());
  await print(options.json, { deliveries: found, next: page.next }, () =>
    found.length === 0
      ? 'Nothing was to be delivered.\n'
      : columns(
          found.map((each) => {
            const { event, attempts, status, error, created, due, delivered } = each;
            const last = [status, error].filter((said) => said !== undefined).join(' ');
            const came =
              delivered !== undefined
                ? style.good(`delivered ${delivered}`)
                : due !== undefined
                  ? style.warn(`tried next ${due}`)
                  : style.bad('given up');
            return [
              each.id,
              `${event}  ${created}  ${came}, ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}${last === '' ? '' : `, the last: ${printable(last)}`}`,
            ];
          }),
          '',
          pageWidth(),
        ),
  );
}

export function register(program: Command): void {
  const webhook = program.command('webhook').description('be told when a session settles');
  projectOption(webhook.command('add'))
    .description('have a URL told; its secret is shown once')
    .argument('<url>', 'https; http where the operator of the service allows it')
    .addOption(new Option('--event <event...>', 'only these').choices([...WEBHOOK_EVENTS]))
    .addHelpText(
      'after',
      `
Signed as Standard Webhooks are, and sent again with growing pauses for a day. Addresses of private networks and of the
service's own machine are refused unless its operator allows them.`,
    )
    .action(add);
  projectOption(webhook.command('list')).description('who is told of what').action(list);
  projectOption(webhook.command('remove'))
    .description('tell no more')
    .argument('<id>', 'such as whk_01jd...')
    .action(remove);
  projectOption(webhook.command('deliveries'))
    .description('what was sent, and what became of it')
    .argument('<id>', 'such as whk_01jd...')
    .option('--limit <n>', 'at most so many', whole, 20)
    .action(deliveries);
}
