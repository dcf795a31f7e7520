/** The rules that are in force where the operator says nothing else. */

/** Where tests and what they rest on are found in projects of Python, TypeScript and JavaScript, Go, Rust and Java. */
export const TEST_PATHS: readonly string[] = [
  // folders
  '**/{test,tests,spec,specs,testing,e2e,it}/**',
  '**/{__tests__,__snapshots__,__mocks__,__fixtures__,testdata,golden,goldens}/**',
  '**/src/{test,integrationTest,testFixtures,androidTest}/**',
  // files beside what they test
  '**/{test_*,*_test,*_tests,tests}.py',
  '**/*{.,-,_}{test,spec,e2e,cy}.{js,jsx,ts,tsx,mjs,cjs,mts,cts}',
  '**/{test,spec}.{js,jsx,ts,tsx,mjs,cjs,mts,cts}',
  '**/*_test.go',
  '**/*{Test,Tests,TestCase,IT,Spec}.{java,kt,groovy,scala}',
  '**/Test*.{java,kt,groovy,scala}',
  '**/*.{snap,ambr,golden,approved,snapshot}',
  '**/*.approved.*',
  // what says which tests run
  '**/conftest.py',
  '**/{pytest,.pytest,tox}.ini',
  '**/{setup.cfg,pyproject.toml,tox.toml,pytest.toml,noxfile.py,.coveragerc}',
  '**/{package,deno,nx,project,turbo}.json',
  '**/{jest,vitest,vite,karma,playwright,cypress,ava,wdio,web-test-runner}.{config,conf,workspace,projects}.*',
  '**/{.mocharc,.nycrc,.taprc,.c8rc}*',
  '**/{Cargo.toml,nextest.toml,bunfig.toml}',
  '**/{pom.xml,testng*.xml,*.gradle,*.gradle.kts,gradle.properties,junit-platform.properties}',
  '**/{Makefile,makefile,GNUmakefile,justfile,Justfile,Taskfile.yml,Taskfile.yaml}',
  '**/{test,tests,ci,check,run_tests,run-tests}.{sh,bash,ps1,cmd,bat}',
  '**/.husky/**',
  // CI
  '.github/{workflows,actions}/**',
  '{.circleci,.buildkite,.gitlab}/**',
  '**/{.gitlab-ci,.travis,azure-pipelines,bitbucket-pipelines,appveyor,.appveyor,.drone,cloudbuild,.cirrus,.woodpecker,codecov,.codecov,.pre-commit-config}.{yml,yaml}',
  '**/Jenkinsfile',
];

/** Not ours to judge, or written by runners themselves. */
export const TEST_PATHS_EXCEPT: readonly string[] = [
  '**/node_modules/**',
  '**/{.git,.hg,.svn}/**',
  '**/{__pycache__,.pytest_cache,.mypy_cache,.ruff_cache,.tox,.nox,.venv,venv}/**',
  '**/{dist,build,target,coverage,.next,.nuxt,.turbo,.gradle}/**',
];
