"""Layer-wise relevance propagation as it is written down: neuron by neuron, with a division at each.

For one sentence and a model with multi-head attention: a pass keeps every activation as a plain number, and what comes
to a neuron y_j goes on to what it was made of, R_i = sum_j x_i w_ij / y_j R_j, layer after layer. Attention weights and
the deviations of layer norms are numbers; activation functions pass on what they get. A bias is one more input x_i = 1,
whose relevance is noted and goes nowhere.

Shapes: lists [T][D] of positions and channels.
"""

import math

import torch


def numbers(tensor):
    """Nested lists; None stays."""
    return None if tensor is None else tensor.detach().tolist()


class Propagation:
    """A pass through a model for one sentence, and what it notes on the way back.

    Attributes:
        heads: site -> relevance of each head.
        biases: relevance that biases kept, summed.
        inputs: relevance of the token vectors of both sides, summed.
    """

    def __init__(self, model, source_ids, target_ids):
        self.model, self.biases, self.inputs = model, 0.0, 0.0
        self.heads = {name: [0.0] * len(site.numbers) for name, site in model.attention_sites().items()}
        source = numbers(model.embed_source(source_ids)[0])
        target = numbers(model.embed_target(target_ids)[0])
        self.back_through_encoder, self.back_through_decoder = [], []
        for layer in model.encoder.layers:
            source = self.block(self.back_through_encoder, layer.self_residual, layer.self_attention, source)
            source = self.block(self.back_through_encoder, layer.feed_forward_residual, layer.feed_forward, source)
        source = self.last_norm(self.back_through_encoder, model.encoder, source)
        for layer in model.decoder.layers:
            target = self.block(self.back_through_decoder, layer.self_residual, layer.self_attention, target)
            target = self.block(self.back_through_decoder, layer.cross_residual, layer.cross_attention, target, source)
            target = self.block(self.back_through_decoder, layer.feed_forward_residual, layer.feed_forward, target)
        self.hidden = self.last_norm(self.back_through_decoder, model.decoder, target)
        self.of_memory = [[0.0] * len(row) for row in source]

    def propagate(self, step):
        """Take the largest logit at a position back to the token vectors; returns the logit."""
        logits = [dot(self.hidden[step], row) for row in numbers(self.model.output_weight)]
        best = logits.index(max(logits))
        weights = numbers(self.model.output_weight[best])
        relevance = [[0.0] * len(row) for row in self.hidden]
        relevance[step] = [x * w for x, w in zip(self.hidden[step], weights, strict=True)]
        for back in reversed(self.back_through_decoder):
            relevance = back(relevance)
        self.inputs += total(relevance)
        relevance = self.of_memory
        for back in reversed(self.back_through_encoder):
            relevance = back(relevance)
        self.inputs += total(relevance)
        return logits[best]

    def block(self, backs, residual, module, stream, memory=None):
        """A block with its residual connection and its norm."""
        inputs, back_before = (
            self.norm(residual.norm, stream) if residual.pre else (stream, lambda relevance: relevance)
        )
        if hasattr(module, "inner"):
            added, back_block = self.feed_forward(module, inputs)
        else:
            added, back_block = self.attention(module, inputs, memory)
        summed = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(stream, added, strict=True)]
        outputs, back_after = (
            (summed, lambda relevance: relevance) if residual.pre else self.norm(residual.norm, summed)
        )

        def back(relevance):
            relevance = back_after(relevance)
            around = [[0.0] * len(row) for row in stream]
            to_block = [[0.0] * len(row) for row in stream]
            for t, row in enumerate(relevance):
                for i, given in enumerate(row):
                    around[t][i] = stream[t][i] / summed[t][i] * given
                    to_block[t][i] = added[t][i] / summed[t][i] * given
            through = back_before(back_block(to_block))
            return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(around, through, strict=True)]

        backs.append(back)
        return outputs

    def last_norm(self, backs, stack, stream):
        """The norm at the end of a stack, where there is one."""
        if not isinstance(stack.norm, torch.nn.LayerNorm):
            return stream
        outputs, back = self.norm(stack.norm, stream)
        backs.append(back)
        return outputs

    def linear(self, module, rows):
        """[T][I] -> [T][O], and the way back."""
        weight, bias = numbers(module.weight), numbers(module.bias) or [0.0] * len(module.weight)
        outputs = [[dot(row, weight[j]) + bias[j] for j in range(len(weight))] for row in rows]

        def back(relevance):
            found = [[0.0] * len(row) for row in rows]
            for t, row in enumerate(rows):
                for j, given in enumerate(relevance[t]):
                    for i, x in enumerate(row):
                        found[t][i] += x * weight[j][i] / outputs[t][j] * given
                    self.biases += bias[j] / outputs[t][j] * given
            return found

        return outputs, back

    def norm(self, module, rows):
        """Layer norm: a linear map, of which every row has another."""
        weight, bias = numbers(module.weight), numbers(module.bias) or [0.0] * len(module.weight)
        num, outputs, deviations = len(weight), [], []
        for row in rows:
            mean = sum(row) / num
            deviations.append(math.sqrt(sum((x - mean) ** 2 for x in row) / num + module.eps))
            outputs.append([w * (x - mean) / deviations[-1] + b for x, w, b in zip(row, weight, bias, strict=True)])

        def back(relevance):
            found = [[0.0] * num for _ in rows]
            for t, row in enumerate(rows):
                for j, given in enumerate(relevance[t]):
                    for i, x in enumerate(row):
                        slope = weight[j] * ((i == j) - 1 / num) / deviations[t]
                        found[t][i] += slope * x / outputs[t][j] * given
                    self.biases += bias[j] / outputs[t][j] * given
            return found

        return outputs, back

    def feed_forward(self, module, rows):
        """Two linear maps; ReLU or GELU between them."""
        inner, back_inner = self.linear(module.inner, rows)
        active = {"relu": lambda x: max(x, 0.0), "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2}
        outputs, back_outer = self.linear(module.outer, [[active[module.activation](x) for x in row] for row in inner])
        return outputs, lambda relevance: back_inner(back_outer(relevance))

    def attention(self, site, rows, memory):
        """Multi-head attention; of what is read of a memory the relevance is added up."""
        block, sides = site.attention, rows if memory is None else memory
        queries, keys = self.linear(block.query, rows)[0], self.linear(block.key, sides)[0]
        values, back_values = self.linear(block.value, sides)
        width, causal = block.head_dim, site.name.startswith("decoder") and memory is None
        num_heads, given_by_heads, weights = block.num_heads, [], []
        for t, query in enumerate(queries):
            given_by_heads.append([0.0] * (num_heads * width))
            weights.append([])
            for h in range(num_heads):
                channels = slice(h * width, (h + 1) * width)
                readable = range(t + 1) if causal else range(len(sides))
                scores = [math.exp(dot(query[channels], keys[s][channels]) / math.sqrt(width)) for s in readable]
                weights[t].append([score / sum(scores) for score in scores])
                for s, weight in enumerate(weights[t][h]):
                    for c in range(h * width, (h + 1) * width):
                        given_by_heads[t][c] += weight * values[s][c]
        outputs, back_output = self.linear(block.output, given_by_heads)

        def back(relevance):
            of_heads = back_output(relevance)
            of_values = [[0.0] * len(row) for row in values]
            for t, row in enumerate(of_heads):
                for c, given in enumerate(row):
                    h = c // width
                    self.heads[site.name][h] += given
                    for s, weight in enumerate(weights[t][h]):
                        of_values[s][c] += weight * values[s][c] / given_by_heads[t][c] * given
            of_sides = back_values(of_values)
            if memory is None:
                return of_sides
            for s, row in enumerate(of_sides):
                for i, given in enumerate(row):
                    self.of_memory[s][i] += given
            return [[0.0] * len(row) for row in rows]

        return outputs, back


def dot(left, right):
    """The product of two vectors."""
    return sum(x * y for x, y in zip(left, right, strict=True))


def total(rows):
    """The sum over positions and channels."""
    return sum(map(sum, rows))
