#!/usr/bin/env python3
"""One agent learns from several observers, each with a world of its own on another worker. Observers ask the agent what
to do through a reference to it; the agent keeps who did what, and learns after each round (REINFORCE).

Written for torch.distributed.rpc. On Holdfast: python3 -m holdfast.compat reinforcement.py
"""
import os
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Categorical

OBSERVERS = 2
ROUNDS = 40
STEPS = 20


class Walk:
    """A world with one rule: who walks towards zero is rewarded."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def start(self):
        self.place = (torch.rand(1, generator=self.generator) * 4 - 2).item()
        return torch.tensor([self.place])

    def step(self, action):
        before = abs(self.place)
        self.place += 0.25 if action == 1 else -0.25
        return torch.tensor([self.place]), before - abs(self.place)


class Observer:
    def __init__(self):
        self.id = rpc.get_worker_info().id
        self.world = Walk(self.id)

    def run_episode(self, agent_rref):
        state = self.world.start()
        for _ in range(STEPS):
            action = agent_rref.rpc_sync().select_action(self.id, state)
            state, reward = self.world.step(action)
            agent_rref.rpc_sync().report_reward(self.id, reward)


class Agent:
    def __init__(self):
        torch.manual_seed(0)
        self.policy = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.05)
        self.lock = threading.Lock()
        self.observers = [rpc.remote(f"observer{i}", Observer) for i in range(OBSERVERS)]
        self.rref = rpc.RRef(self)
        self.log_probs, self.rewards = {}, {}

    def select_action(self, observer, state):
        choice = Categorical(logits=self.policy(state))
        with self.lock:
            action = choice.sample()
            self.log_probs.setdefault(observer, []).append(choice.log_prob(action))
        return action.item()

    def report_reward(self, observer, reward):
        with self.lock:
            self.rewards.setdefault(observer, []).append(reward)

    def round(self):
        torch.futures.wait_all([observer.rpc_async().run_episode(self.rref) for observer in self.observers])
        losses, total = [], 0.0
        for observer, rewards in self.rewards.items():
            total += sum(rewards)
            rewards = torch.tensor(rewards)
            advantage = rewards - rewards.mean() if rewards.std() == 0 else (rewards - rewards.mean()) / rewards.std()
            losses += [-log_prob * gain for log_prob, gain in zip(self.log_probs[observer], advantage)]
        self.optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        self.optimizer.step()
        self.log_probs, self.rewards = {}, {}
        return total / len(self.observers)

    def forget(self):
        self.rref = None
        self.observers = []


def run(rank):
    names = ["agent"] + [f"observer{i}" for i in range(OBSERVERS)]
    rpc.init_rpc(names[rank], rank=rank, world_size=len(names))
    if rank == 0:
        agent = Agent()
        rewards = [agent.round() for _ in range(ROUNDS)]
        first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
        print(f"reward {first:.2f} -> {last:.2f}")
        assert last > first, "the agent has learnt nothing"
        agent.forget()
    rpc.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29502")
    mp.spawn(run, nprocs=1 + OBSERVERS)
