import { type INestApplication } from '@nestjs/common';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';

/** The document at `/docs-json`, and a page to try it at `/docs`. */
export function serveDocs(app: INestApplication): void {
  const config = new DocumentBuilder()
    .setTitle('Belay')
    .setDescription(
      'An append-only log of what agents did, with receipts that are checked offline. Errors are problem details (RFC 9457) with a stable `code`.',
    )
    .setVersion('1')
    .setOpenAPIVersion('3.1.0')
    .addBearerAuth({ type: 'http', scheme: 'bearer', bearerFormat: 'belay_<kind>_...' })
    .build();
  const document = SwaggerModule.createDocument(app, config);
  // OpenAPI has no wildcards; the tail of a tile's path is one parameter with slashes in it.
  const paths = Object.entries(document.paths).map(([path, item]) => [
    path.replace(/\{?\*\}?$|\{path\}$/, '{path}'),
    item,
  ]);
  document.paths = Object.fromEntries(paths) as typeof document.paths;
  SwaggerModule.setup('docs', app, document, { jsonDocumentUrl: 'docs-json', raw: ['json'] });
}
