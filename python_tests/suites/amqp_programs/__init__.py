"""Random programs of AMQP methods, played against txha and a RabbitMQ; answers and final contents must be the same."""
