# The service on one box: `make up`, and everything else a developer or operator types.
# `make help` lists it.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON := .venv/bin/python

.PHONY: help up down restart stop start status logs bench \
        test test-quick test-unit test-functional test-contract test-vm test-browser test-chaos \
        lint image requirements systemd clean clean-all packages venv

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: packages ## make this machine run the whole service; again is quick and changes nothing
	@$(PYTHON) -m bin.up

down: venv ## put the sandboxes to sleep and stop everything; FORCE=1 even if one stays awake
	@$(PYTHON) -m bin.down $(if $(FORCE),force,down)

restart: venv ## restart our processes, not the databases, with today's code; sandboxes run on
	@$(PYTHON) -m bin.restart

stop: venv ## stop our processes, not the databases; sandboxes run on
	@$(PYTHON) -m bin.restart stop

start: venv ## start one of them again; P=node-ctl
	@$(PYTHON) -m bin.restart start $(P)

status: venv ## what runs, and how far the warm images of the sizes are
	@$(PYTHON) -m bin.status

logs: ## follow the logs; P=api for one process
	@tail -n 40 -F var/log/$(or $(P),*).log

test: packages ## every test, on private stacks beside `make up`, and the slowest 30 of each run
	@$(PYTHON) -m bin.test

test-quick: packages ## unit, functional and contract tests, without virtual machines and slow ones
	@$(PYTHON) -m bin.test quick

test-unit: venv ## rules and pure functions, style and layering
	@$(PYTHON) -m bin.test unit

test-functional: packages ## every process, with a simulated hypervisor
	@$(PYTHON) -m bin.test functional

test-contract: packages ## the contract, line by line
	@$(PYTHON) -m bin.test contract

test-vm: packages ## real virtual machines
	@$(PYTHON) -m bin.test vm

test-browser: packages ## previews, lfg and deployed apps in a real Chromium
	@$(PYTHON) -m bin.test browser

test-chaos: packages ## kill -9 of everything, at any moment
	@$(PYTHON) -m bin.test chaos

bench: packages ## the README's figures with their floors; ARGS=options, RUNNING=1 on `make up`
	@$(PYTHON) -m bin.bench $(ARGS)

lint: venv ## flake8, isort, mypy, layering and style tests
	@.venv/bin/flake8 .
	@.venv/bin/isort --check-only --quiet --diff .
	@.venv/bin/mypy .
	@$(PYTHON) -m pytest -q $(addprefix tests/unit/house/test_,layering.py style.py settings.py)

image: packages ## build the guest image and bake the warm image of the smallest size
	@$(PYTHON) -m bin.image

requirements: venv ## write every version of requirements.in into requirements.txt
	@$(PYTHON) -m bin.pin

systemd: venv ## write units for production to var/systemd
	@$(PYTHON) -m bin.systemd

clean: venv ## stop, and remove everything but images and downloads: sandboxes, accounts, logs
	@$(PYTHON) -m bin.down clean

clean-all: venv ## remove var/ wholly
	@$(PYTHON) -m bin.down clean-all

packages:
	@python3 -m bin.bootstrap

venv:
	@python3 -m bin.bootstrap python
