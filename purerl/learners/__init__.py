"""What algorithms share: parts that a learner is made of, families of algorithms, and wrappers around any learner."""
