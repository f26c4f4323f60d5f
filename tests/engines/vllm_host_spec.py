"""vLLM's tiers (TieringOffloadingSpec) for a KV cache in host memory.

The copy between the "GPU's" blocks and the CPU tier is CUDA's in vLLM, which
refuses other devices. This one copies between two regions of host memory; all
else, the tiers with their files above all, is vLLM's own. Loaded by
spec_module_path.
"""

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class HostWorker(OffloadingWorker):
    """Copies at once: a job is finished when it has been submitted."""

    def __init__(self, kv_caches, region):
        self.region = region
        self.engine = [
            t.tensor.view(torch.int8).view(-1, t.page_size_bytes)
            for t in kv_caches.tensors
        ]
        self.tier = [
            region.create_next_worker_view(t.page_size_bytes)
            for t in kv_caches.tensors
        ]
        self.groups = kv_caches.group_data_refs
        self.results = []

    def copy(self, job_id, engine_spec, tier_spec, to_tier):
        size = 0
        begin = 0
        for refs, count in zip(self.groups, engine_spec.group_sizes):
            here = torch.from_numpy(engine_spec.block_ids[begin : begin + count]).long()
            there = torch.from_numpy(tier_spec.block_ids[begin : begin + count]).long()
            for ref in refs:
                e, t = self.engine[ref.tensor_idx], self.tier[ref.tensor_idx]
                if to_tier:
                    t[there] = e[here]
                else:
                    e[here] = t[there]
                size += count * ref.page_size_bytes
            begin += count
        assert begin == len(engine_spec.block_ids) == len(tier_spec.block_ids)
        self.results.append(TransferResult(job_id, True, size, 1e-6))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        results, self.results = self.results, []
        return results

    def wait(self, job_ids):
        pass

    def shutdown(self):
        self.engine.clear()
        self.tier.clear()
        self.region.cleanup()


class HostTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            assert self.blocks_per_chunk == 1
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = HostWorker(kv_caches, region)
        return self._worker
